//! Writes numbers in decimal, in replies and in statistics.

/// The number of digits of `u64::MAX`.
pub(super) const DIGITS_MAX: usize = 20;

/// Appends a number in decimal. Most replies contain a number, and the standard formatting would take longer than the rest of the encoding.
pub(super) fn put_number(output: &mut Vec<u8>, mut number: u64) {
    let start = output.len();
    loop {
        let digit = u8::try_from(number % 10).expect("a digit should fit into a byte");
        output.push(b'0' + digit);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output.get_mut(start..).expect("the output should only have grown").reverse();
}
