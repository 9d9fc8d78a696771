//! Attributes of custom calls that the IR keeps as printed.

use super::{join, scan::Scan};
use crate::xla;
use std::fmt::Write;

/// The fields that [`call_rest`] prints.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CallRest {
    pub(crate) window: Option<xla::Window>,
    pub(crate) dims: Option<xla::ConvolutionDimensionNumbers>,
    pub(crate) feature_group_count: i64,
    pub(crate) batch_group_count: i64,
    pub(crate) padding: xla::PaddingType,
    pub(crate) literal: Option<Vec<u8>>,
}

fn window(w: &xla::Window) -> String {
    let d = &w.dimensions;
    let mut s = String::from("{");
    let mut part = |name: &str, f: &dyn Fn(&xla::WindowDimension) -> String, default: &str| {
        let v: Vec<String> = d.iter().map(f).collect();
        if v.iter().any(|x| x != default) {
            let sep = if s.len() > 1 { " " } else { "" };
            let _ = write!(s, "{sep}{name}={}", v.join("x"));
        }
    };
    part("size", &|d| d.size.to_string(), "");
    part("stride", &|d| d.stride.to_string(), "1");
    part("pad", &|d| format!("{}_{}", d.padding_low, d.padding_high), "0_0");
    part("lhs_dilate", &|d| d.base_dilation.to_string(), "1");
    part("rhs_dilate", &|d| d.window_dilation.to_string(), "1");
    part("rhs_reversal", &|d| i32::from(d.window_reversal).to_string(), "0");
    s.push('}');
    s
}

fn parse_window(s: &str) -> Option<xla::Window> {
    let mut c = Scan::new(s);
    let mut dims: Vec<xla::WindowDimension> = Vec::new();
    while !c.done() {
        let key = c.word().to_owned();
        c.eat("=")?;
        let values: Vec<&str> = c.value().split('x').collect();
        if dims.is_empty() {
            let one = xla::WindowDimension {
                size: 1,
                stride: 1,
                window_dilation: 1,
                base_dilation: 1,
                ..Default::default()
            };
            dims = vec![one; values.len()];
        }
        if dims.len() != values.len() {
            return None;
        }
        for (d, v) in dims.iter_mut().zip(values) {
            match key.as_str() {
                "size" => d.size = v.parse().ok()?,
                "stride" => d.stride = v.parse().ok()?,
                "pad" => {
                    let (low, high) = v.split_once('_')?;
                    d.padding_low = low.parse().ok()?;
                    d.padding_high = high.parse().ok()?;
                }
                "lhs_dilate" => d.base_dilation = v.parse().ok()?,
                "rhs_dilate" => d.window_dilation = v.parse().ok()?,
                "rhs_reversal" => d.window_reversal = v == "1",
                _ => return None,
            }
        }
    }
    Some(xla::Window { dimensions: dims })
}

/// One side of `dim_labels`: two letters and spatial digits.
fn labels(a: (i64, char), b: (i64, char), spatial: &[i64]) -> Option<String> {
    let mut v = vec!['?'; spatial.len() + 2];
    *v.get_mut(usize::try_from(a.0).ok()?)? = a.1;
    *v.get_mut(usize::try_from(b.0).ok()?)? = b.1;
    for (i, &d) in spatial.iter().enumerate() {
        *v.get_mut(usize::try_from(d).ok()?)? = char::from_digit(i as u32, 10)?;
    }
    Some(v.into_iter().collect())
}

fn parse_labels(s: &str, a: char, b: char) -> Option<(i64, i64, Vec<i64>)> {
    let find = |c: char| s.chars().position(|x| x == c).map(|i| i as i64);
    let n = s.chars().count().checked_sub(2)?;
    let spatial =
        (0..n as u32).map(|i| find(char::from_digit(i, 10)?)).collect::<Option<Vec<i64>>>()?;
    Some((find(a)?, find(b)?, spatial))
}

/// `window=.., dim_labels=.., ..`; `None` if all have their defaults. A
/// literal is printed as the bytes of its proto in hexadecimal.
pub(crate) fn call_rest(r: &CallRest) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(w) = r.window.as_ref().filter(|w| !w.dimensions.is_empty()) {
        parts.push(format!("window={}", window(w)));
    }
    if let Some(d) = &r.dims {
        let input = (d.input_batch_dimension, 'b');
        let kernel = (d.kernel_input_feature_dimension, 'i');
        let output = (d.output_batch_dimension, 'b');
        parts.push(format!(
            "dim_labels={}_{}->{}",
            labels(input, (d.input_feature_dimension, 'f'), &d.input_spatial_dimensions)?,
            labels(kernel, (d.kernel_output_feature_dimension, 'o'), &d.kernel_spatial_dimensions)?,
            labels(output, (d.output_feature_dimension, 'f'), &d.output_spatial_dimensions)?,
        ));
    }
    if r.feature_group_count > 1 {
        parts.push(format!("feature_group_count={}", r.feature_group_count));
    }
    if r.batch_group_count > 1 {
        parts.push(format!("batch_group_count={}", r.batch_group_count));
    }
    if r.padding != xla::PaddingType::PaddingInvalid {
        parts.push(format!("padding_type={}", r.padding.as_str_name()));
    }
    if let Some(l) = &r.literal {
        parts.push(format!("literal=0x{}", join(l.iter().map(|b| format!("{b:02x}")), "")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The inverse of [`call_rest`]; parts that it does not know are left out.
pub(crate) fn parse_call_rest(s: &str) -> CallRest {
    let mut r = CallRest::default();
    let mut c = Scan::new(s);
    while !c.done() {
        let key = c.word();
        if c.eat("=").is_none() {
            break;
        }
        match key {
            "window" => {
                let Some(body) = c.balanced('{', '}') else { break };
                r.window = parse_window(body);
            }
            "dim_labels" => r.dims = parse_dim_labels(c.value()),
            "feature_group_count" => r.feature_group_count = c.int().unwrap_or(0),
            "batch_group_count" => r.batch_group_count = c.int().unwrap_or(0),
            "padding_type" => {
                r.padding = xla::PaddingType::from_str_name(c.value()).unwrap_or_default();
            }
            "literal" => r.literal = c.value().strip_prefix("0x").and_then(unhex),
            _ => break,
        }
        c.try_eat(",");
    }
    r
}

fn parse_dim_labels(s: &str) -> Option<xla::ConvolutionDimensionNumbers> {
    let (lhs, out) = s.split_once("->")?;
    let (lhs, rhs) = lhs.split_once('_')?;
    let (input_batch_dimension, input_feature_dimension, input_spatial_dimensions) =
        parse_labels(lhs, 'b', 'f')?;
    let (
        kernel_input_feature_dimension,
        kernel_output_feature_dimension,
        kernel_spatial_dimensions,
    ) = parse_labels(rhs, 'i', 'o')?;
    let (output_batch_dimension, output_feature_dimension, output_spatial_dimensions) =
        parse_labels(out, 'b', 'f')?;
    Some(xla::ConvolutionDimensionNumbers {
        kernel_input_feature_dimension,
        kernel_output_feature_dimension,
        kernel_spatial_dimensions,
        input_batch_dimension,
        input_feature_dimension,
        output_batch_dimension,
        output_feature_dimension,
        input_spatial_dimensions,
        output_spatial_dimensions,
    })
}

fn unhex(s: &str) -> Option<Vec<u8>> {
    let digits = s.as_bytes().chunks(2);
    digits
        .map(|d| match d {
            [_, _] => u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // As jaxlib 0.10.2 prints it, up to the literal.
    #[test]
    fn rest_survives() {
        let s = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, \
                 feature_group_count=2, padding_type=PADDING_SAME, literal=0x00ff";
        assert_eq!(call_rest(&parse_call_rest(s)).as_deref(), Some(s));
        assert_eq!(call_rest(&CallRest::default()), None);
    }
}
