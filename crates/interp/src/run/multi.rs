//! The values that one instruction has on all active devices.

use crate::tensor::Value;

/// One value for all devices, or one each, in the order of the active devices.
#[derive(Clone, Debug)]
pub(crate) enum Multi {
    /// The same everywhere.
    Same(Value),
    /// Aligned with the active devices; at least one.
    Each(Vec<Value>),
}

impl Multi {
    /// Joins values that all share their storage. `v` is not empty.
    pub(crate) fn from_vec(mut v: Vec<Value>) -> Multi {
        let joint = v.windows(2).all(|w| w[0].same(&w[1]));
        match (joint, v.pop()) {
            (true, Some(x)) => Multi::Same(x),
            (false, Some(x)) => {
                v.push(x);
                Multi::Each(v)
            }
            (_, None) => Multi::Same(Value::Token),
        }
    }

    /// Value at a position of the active devices.
    pub(crate) fn get(&self, at: usize) -> &Value {
        match self {
            Multi::Same(v) => v,
            Multi::Each(v) => v.get(at).unwrap_or(&Value::Token),
        }
    }

    pub(crate) fn take(&mut self, at: usize) -> Value {
        match self {
            Multi::Same(v) => v.clone(),
            Multi::Each(v) => {
                v.get_mut(at).map_or(Value::Token, |v| std::mem::replace(v, Value::Token))
            }
        }
    }

    /// Element `i` of tuples, if they are that.
    pub(crate) fn element(&self, i: i64) -> Option<Multi> {
        let i = usize::try_from(i).ok()?;
        let one = |v: &Value| v.as_tuple()?.get(i).cloned();
        match self {
            Multi::Same(v) => one(v).map(Multi::Same),
            Multi::Each(v) => v.iter().map(one).collect::<Option<_>>().map(Multi::from_vec),
        }
    }

    /// The elements of tuples of `n`.
    pub(crate) fn untuple(self, n: usize) -> Vec<Multi> {
        let each = |v: Value| match v {
            Value::Tuple(t) => t,
            v => vec![v],
        };
        match self {
            Multi::Same(v) => each(v).into_iter().map(Multi::Same).collect(),
            Multi::Each(v) => {
                let mut out = vec![Vec::new(); n];
                for v in v {
                    for (o, x) in out.iter_mut().zip(each(v)) {
                        o.push(x);
                    }
                }
                out.into_iter().map(Multi::from_vec).collect()
            }
        }
    }

    pub(crate) fn is_same(&self) -> bool {
        matches!(self, Multi::Same(_))
    }

    pub(crate) fn map(&self, f: &impl Fn(&Value) -> Value) -> Multi {
        match self {
            Multi::Same(v) => Multi::Same(f(v)),
            Multi::Each(v) => Multi::Each(v.iter().map(f).collect()),
        }
    }

    pub(crate) fn all(&self, f: impl Fn(&Value) -> bool) -> bool {
        match self {
            Multi::Same(v) => f(v),
            Multi::Each(v) => v.iter().all(f),
        }
    }

    /// Values of some positions, for a smaller set of active devices.
    pub(crate) fn restrict(&self, at: &[usize]) -> Multi {
        match self {
            Multi::Same(v) => Multi::Same(v.clone()),
            Multi::Each(_) => Multi::from_vec(at.iter().map(|&i| self.get(i).clone()).collect()),
        }
    }
}
