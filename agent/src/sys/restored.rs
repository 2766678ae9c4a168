//! System calls after a resume: the kernel's random number generator, clocks, and a filter for
//! events that wake the agent.
#![expect(clippy::cast_possible_truncation, reason = "the sizes and codes have a few bits")]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

/// `RNDADDENTROPY`, `_IOW('R', 3, int[2])` (random(4)).
const ADD_ENTROPY: libc::Ioctl = 0x4008_5203;
/// `RNDRESEEDCRNG`, `_IO('R', 7)`.
const RESEED: libc::Ioctl = 0x5207;
const SECOND: i64 = 1_000_000_000;
/// Bytes that are mixed in at a time.
const POOL: usize = 256;
/// Random bits credited for the hardware's bytes: the size of the kernel's generator.
const BITS: libc::c_int = 256;

/// `struct rand_pool_info`.
#[repr(C)]
struct Pool {
    bits: libc::c_int,
    length: libc::c_int,
    bytes: [i64; POOL / size_of::<i64>()],
}

/// Reseeds the kernel's CRNG, first from `numbers` (credited 0 bits), then from the hardware RNG,
/// if there is one; `random` is `/dev/urandom`. Returns whether it worked.
pub(crate) fn reseed(random: &File, hardware: Option<&File>, numbers: [i64; 2]) -> bool {
    let mut pool = Pool { bits: 0, length: POOL as libc::c_int, bytes: [0; POOL / 8] };
    for (place, number) in pool.bytes.iter_mut().zip(numbers) {
        *place = number;
    }
    // SAFETY: the kernel reads the pool's two numbers and as many bytes as the second
    // states; the pool contains them. The second call has no argument.
    let mix = |pool: &Pool| unsafe {
        let fd = random.as_raw_fd();
        libc::ioctl(fd, ADD_ENTROPY, &raw const *pool) == 0 && libc::ioctl(fd, RESEED) == 0
    };
    let done = mix(&pool);
    let Some(hardware) = hardware else { return done };
    // Read more than the kernel and its driver may have buffered (64 bytes each), because a clone
    // has the same buffers. SAFETY: the array is writable for that length, and any bytes are valid
    // numbers.
    let read = unsafe { libc::read(hardware.as_raw_fd(), pool.bytes.as_mut_ptr().cast(), POOL) };
    if read != POOL as isize {
        return done;
    }
    pool.bits = BITS;
    mix(&pool)
}

/// Returns a clock's time in nanoseconds. rustix would search the vDSO with its own code.
fn time(clock: libc::clockid_t) -> Option<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec))
}

/// Returns the wall clock's nanoseconds since 1970.
pub(crate) fn wall() -> i64 {
    time(libc::CLOCK_REALTIME).unwrap_or_default()
}

/// Returns the time of a clock device, such as `/dev/ptp0`, in nanoseconds.
pub(crate) fn device_time(device: &File) -> Option<i64> {
    // FD_TO_CLOCKID of clock_gettime(2).
    time((!device.as_raw_fd() << 3) | 3)
}

/// Sets the wall clock, if permitted.
pub(crate) fn set_wall(nanoseconds: i64) -> bool {
    let (tv_sec, tv_nsec) = (nanoseconds.div_euclid(SECOND), nanoseconds.rem_euclid(SECOND));
    let time = libc::timespec { tv_sec, tv_nsec };
    // SAFETY: `time` is readable.
    unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) == 0 }
}

/// Returns whether a program keeps the kernel's clock synchronised, according to adjtimex(2).
pub(crate) fn is_synchronised() -> bool {
    // SAFETY: `timex` consists of integers; all zeroes only query the state.
    unsafe {
        let mut state: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut state) >= 0 && state.status & libc::STA_UNSYNC == 0
    }
}

/// Filters an rtnetlink socket so that only announcements of a NIC (`IFLA_EVENT_NOTIFY_PEERS`)
/// pass, because other link events, such as those of containers, would wake the agent. Returns
/// false on failure.
pub(crate) fn only_announcements(socket: &OwnedFd) -> bool {
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let mut steps = ANNOUNCEMENT;
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let program = (&raw const program).cast();
    let fd = socket.as_raw_fd();
    // SAFETY: the program has that length and outlives the call, which copies it.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program, length) == 0 }
}

/// Returns a step of the filter. A comparison skips `same` steps if true, `other` if false.
const fn step(code: u32, k: u32, same: u8, other: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: same, jf: other, k }
}

/// Load a constant into A or X.
const SET: u32 = libc::BPF_LD | libc::BPF_IMM;
const SET_X: u32 = libc::BPF_LDX | libc::BPF_IMM;
/// Load into A from the message, at an offset or at one relative to X.
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_BEHIND_X: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// `SKF_AD_OFF + SKF_AD_NLATTR`: offset of attribute X after offset A, or 0. [`FIND_WITHIN`]
/// searches within the attribute at A.
const FIND: u32 = (-0x1000_i32 + 12).cast_unsigned();
const FIND_WITHIN: u32 = (-0x1000_i32 + 16).cast_unsigned();
/// Offset of the attributes, after `nlmsghdr` and `ifinfomsg`.
const ATTRIBUTES: u32 = 32;

const ANNOUNCEMENT: [libc::sock_filter; 16] = [
    step(SET, ATTRIBUTES, 0, 0),
    step(SET_X, 44, 0, 0), // IFLA_EVENT
    step(LOAD, FIND, 0, 0),
    step(EQUAL, 0, 10, 0),
    step(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
    step(LOAD_BEHIND_X, 4, 0, 0),
    // A message is in host byte order, loaded values are in network byte order.
    step(EQUAL, 4_u32.to_be(), 0, 7),
    // A bridge or bond has IFLA_LINKINFO with IFLA_INFO_KIND; its member NICs have only the former.
    step(SET, ATTRIBUTES, 0, 0),
    step(SET_X, 18, 0, 0),
    step(LOAD, FIND, 0, 0),
    step(EQUAL, 0, 4, 0),
    step(SET_X, 1, 0, 0),
    step(LOAD, FIND_WITHIN, 0, 0),
    step(EQUAL, 0, 1, 0),
    step(RETURN, 0, 0, 0),
    step(RETURN, u32::MAX, 0, 0),
];
