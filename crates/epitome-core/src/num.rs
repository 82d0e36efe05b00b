//! Computes logarithms and exponentials with bit-identical results on every machine.
//!
//! Math libraries differ in the last digit. A ranking that depends on that digit would produce different
//! summaries on different machines. These functions use only operations that IEEE 754 defines exactly:
//! addition, multiplication and division.

/// Returns the natural logarithm of a number larger than 1. Returns 0 for any other number, for infinity and for NaN.
pub(crate) fn ln(x: f64) -> f64 {
    // No caller needs smaller numbers. NaN becomes 0, so that it does not spread to other results.
    if !(x > 1.0 && x.is_finite()) {
        return 0.0;
    }
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | (1023 << 52));
    // ln m = 2 artanh((m - 1) / (m + 1)). The series of artanh converges fast for m in 1..2.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut term, mut sum) = (t * t, t, 0.0);
    // Multiplies by constants instead of dividing. Multiplication is faster than division and precise enough here.
    for part in [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0] {
        sum += term * part;
        term *= square;
    }
    exponent * std::f64::consts::LN_2 + 2.0 * sum
}

/// Returns the exponential of `x`, precise enough for ranking. A number below -30 counts as -30, and a number above 30
/// counts as 30.
pub(crate) fn exp(x: f64) -> f64 {
    let x = x.clamp(-30.0, 30.0) / 64.0;
    // A series computes the exponential of `x / 64`. The result is then squared six times.
    let mut e = 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0)));
    for _ in 0..6 {
        e *= e;
    }
    e
}

/// Returns the largest number up to `most` for which `fits` is true, by binary search. If `fits` is true for a number,
/// it must also be true for all smaller numbers.
pub(crate) fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        (low, high) = if fits(middle) { (middle, high) } else { (low, middle - 1) };
    }
    low
}

/// Formats a number with thousands separators, such as `8,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_near_those_of_the_library() {
        for n in 1..2_000u32 {
            let x = f64::from(n) * 1.37;
            assert!((ln(x) - x.ln().max(0.0)).abs() < 1e-6, "ln {x}");
            let y = f64::from(n) / 100.0 - 10.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-4, "exp {y}");
        }
    }

    #[test]
    fn odd_numbers_give_no_odd_results() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300] {
            assert!(ln(odd).is_finite() && exp(odd).is_finite() || odd.is_nan(), "{odd}");
        }
        assert_eq!(ln(f64::NAN), 0.0);
    }
}
