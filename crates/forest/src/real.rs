//! The two types in which libraries add leaves: XGBoost in 32 bits, LightGBM and scikit-learn in 64.

use std::ops::{Add, AddAssign, Div, DivAssign, Mul, Neg, Sub};

/// A float of 32 or 64 bits.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + AddAssign
    + Add<Output = Self>
    + DivAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Into<f64>
{
    const ZERO: Self;
    const ONE: Self;

    /// The nearest number of this type.
    fn near(value: f64) -> Self;
    fn single(self) -> f32;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn ln_1p(self) -> Self;
    fn abs(self) -> Self;
}

macro_rules! real {
    ($real:ty) => {
        impl Real for $real {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            fn near(value: f64) -> Self {
                value as Self
            }

            fn single(self) -> f32 {
                self as f32
            }

            fn exp(self) -> Self {
                self.exp()
            }

            fn exp2(self) -> Self {
                self.exp2()
            }

            fn ln_1p(self) -> Self {
                self.ln_1p()
            }

            fn abs(self) -> Self {
                self.abs()
            }
        }
    };
}

real!(f32);
real!(f64);
