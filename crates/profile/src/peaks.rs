//! Peak rates of devices.

use serde::Serialize;

/// Peak rates of one device and where they are from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Peaks {
    /// FLOP/s.
    pub flops: f64,
    /// Bytes/s of its memory.
    pub bytes: f64,
    /// Where the numbers are from.
    pub source: String,
}

/// (part of the name, FLOP/s dense in 16-bit floats, bytes/s), from the
/// vendors' data sheets; more specific names first.
const DEVICES: &[(&str, f64, f64)] = &[
    ("H200", 989e12, 4.8e12),
    ("H100 PCIe", 756e12, 2.0e12),
    ("H100", 989e12, 3.35e12),
    ("A100-SXM4-80GB", 312e12, 2.039e12),
    ("A100 80GB", 312e12, 1.935e12),
    ("A100", 312e12, 1.555e12),
    ("V100", 125e12, 0.9e12),
    ("A10G", 70e12, 0.6e12),
    ("L4", 121e12, 0.3e12),
    ("T4", 65e12, 0.32e12),
];

/// Peaks of the device with this name, if known.
pub fn of_device(name: &str) -> Option<Peaks> {
    // Whole words, so that an L40 is no L4.
    let ends = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    let has = |part: &str| {
        name.match_indices(part).any(|(k, _)| {
            ends(name[..k].chars().next_back()) && ends(name[k + part.len()..].chars().next())
        })
    };
    let d = DEVICES.iter().find(|d| has(d.0))?;
    Some(Peaks { flops: d.1, bytes: d.2, source: format!("data sheet of {name}, 16-bit floats") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices() {
        let bytes = |n: &str| of_device(n).map(|p| p.bytes);
        assert_eq!(bytes("NVIDIA A100-SXM4-80GB"), Some(2.039e12));
        assert_eq!(bytes("NVIDIA A100-SXM4-40GB"), Some(1.555e12));
        assert_eq!(bytes("NVIDIA H100 80GB HBM3"), Some(3.35e12));
        assert_eq!(bytes("NVIDIA H100 PCIe"), Some(2.0e12));
        assert_eq!(bytes("Tesla V100-SXM2-16GB"), Some(0.9e12));
        assert_eq!(bytes("NVIDIA L40S"), None);
        assert_eq!(bytes("NVIDIA GH200 480GB"), None);
        assert_eq!(bytes(""), None);
    }
}
