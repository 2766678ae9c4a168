//! Random bytes determined by the seed.

use crate::below::here::here;

pub(crate) fn fill_random(bytes: &mut [u8]) {
    let number = here().sim.number().to_be_bytes();
    for (byte, digit) in bytes.iter_mut().rev().zip(number.iter().rev().cycle()) {
        *byte = *digit;
    }
}
