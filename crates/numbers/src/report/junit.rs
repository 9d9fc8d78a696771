//! JUnit XML for continuous integration: a test case per tensor.

use super::text;
use crate::compare::{Report, Verdict};
use quick_junit::{
    NonSuccessKind, Report as Xml, SerializeError, TestCase, TestCaseStatus, TestSuite,
};

/// The report as JUnit XML. Different tensors are failures, undecided ones
/// errors.
///
/// # Errors
/// None that occur: the text is built in memory.
pub fn junit(r: &Report) -> Result<String, SerializeError> {
    let mut suite = TestSuite::new(format!("{} = {}", r.expected, r.actual));
    for t in &r.tensors {
        let kind = match t.verdict {
            Verdict::Equal => None,
            Verdict::Different => Some(NonSuccessKind::Failure),
            Verdict::Unknown => Some(NonSuccessKind::Error),
        };
        let status = match kind {
            None => TestCaseStatus::success(),
            Some(kind) => {
                let mut s = TestCaseStatus::non_success(kind);
                let first = t.findings.first().map(|f| f.message.as_str()).unwrap_or_default();
                let mut one = Report {
                    tensors: Vec::new(),
                    expected: String::new(),
                    actual: String::new(),
                    ..*r
                };
                one.tensors = vec![t.clone()];
                let body = text(&one, true, false);
                s.set_message(first).set_description(body.split_once('\n').map_or("", |b| b.1));
                s
            }
        };
        let name = if t.name.is_empty() { "(tensor)" } else { &t.name };
        let mut case = TestCase::new(name, status);
        case.set_classname("scalify.compare");
        suite.add_test_case(case);
    }
    let mut xml = Xml::new("scalify compare");
    xml.add_test_suite(suite);
    xml.to_string()
}
