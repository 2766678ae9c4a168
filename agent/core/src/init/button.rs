//! The power button of the kernel's input devices (`Documentation/input/input.rst`).

/// Length of an event on a 64-bit system, in bytes: two numbers of time, then type, code and value.
pub const EVENT: usize = 24;
/// `EV_KEY`.
const KEY: u16 = 1;
/// `KEY_POWER`.
const POWER: u16 = 116;

/// Returns whether a device has a power button, from its `capabilities/key` in sysfs: words of 64
/// bits, the highest first.
pub fn has_it(capabilities: &str) -> bool {
    let word = capabilities.split_ascii_whitespace().rev().nth(usize::from(POWER / 64));
    let word = word.and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or(0);
    word >> (POWER % 64) & 1 == 1
}

/// Returns whether the events contain a press of the button, not only its release or repetition.
pub fn is_pressed(events: &[u8]) -> bool {
    events.chunks_exact(EVENT).any(|event| {
        let (kind, code, value) = (event.get(16..18), event.get(18..20), event.get(20..24));
        kind == Some(KEY.to_ne_bytes().as_slice())
            && code == Some(POWER.to_ne_bytes().as_slice())
            && value == Some(1u32.to_ne_bytes().as_slice())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u16, code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![7; 16];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[test]
    fn only_the_press_of_the_power_key_counts() {
        assert!(is_pressed(&event(1, 116, 1)));
        for other in [event(1, 116, 0), event(1, 116, 2), event(1, 115, 1), event(2, 116, 1)] {
            assert!(!is_pressed(&other));
        }
        let among = [event(4, 4, 1), event(1, 116, 1), event(0, 0, 0)].concat();
        assert!(is_pressed(&among));
        for cut in 0..EVENT {
            assert!(!is_pressed(&event(1, 116, 1)[..cut]), "{cut}");
        }
    }

    #[test]
    fn sysfs_shows_whether_a_device_has_the_key() {
        // An ACPI button and a PS/2 keyboard have one; a mouse, a speaker and an empty text do not.
        assert!(has_it("10000000000000 0\n"));
        assert!(has_it("402000000 3803078f800d001 feffffdfffefffff fffffffffffffffe\n"));
        assert!(!has_it("70000 0 0 0 0\n") && !has_it("0\n") && !has_it("") && !has_it("x y\n"));
    }
}
