//! Pictures of HLO modules: one offline HTML page, SVG, DOT, Model Explorer.
//!
//! [`graph::Graph::new`] folds parameters and constants into their users
//! ([`fold`]), orders each computation ([`order`]), builds the hierarchy
//! ([`tree`]) and lays out every group by itself ([`layout`]).
//! [`page::render`] packs graphs and findings into a page; the front end in
//! `web/` draws them.
//!
//! **What may not live here:** verification and the layout of text reports.
//! Findings come in as JSON (`docs/JSON.md`) and are shown as they are.

pub mod dot;
mod encode;
pub mod explorer;
pub mod fold;
pub mod graph;
pub mod layout;
mod mesh;
pub mod order;
pub mod page;
mod repeat;
pub mod svg;
pub mod tree;

pub use graph::{Graph, TooBig};
pub use page::{Page, render};
