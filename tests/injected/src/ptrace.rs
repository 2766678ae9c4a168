//! Makes another process call the kernel, by ptrace(2).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Bytes for arguments.
const SPACE: u64 = 1 << 16;
/// A call returns a negated error number up to this.
const LAST_ERROR: u64 = 4095;

/// A process that stays stopped until this is dropped, except while it runs an injected call. Only
/// the thread that entered may use it, because the kernel knows that thread as the tracer.
pub struct Injected {
    process: Pid,
    memory: File,
    stopped: libc::user_regs_struct,
    /// Address of a [`SYSCALL`] in its code.
    instruction: u64,
    space: u64,
}

impl Injected {
    /// Stops the process's first thread. `None` without `CAP_SYS_PTRACE`.
    pub fn enter(process: u32) -> Result<Option<Self>, Errno> {
        let process = Pid::from_raw(process.try_into().map_err(|_| Errno::ESRCH)?);
        match ptrace::seize(process, Options::empty()) {
            Err(Errno::EPERM) => return Ok(None),
            seized => seized?,
        }
        ptrace::interrupt(process)?;
        waitpid(process, None)?;
        let open = || File::options().read(true).write(true).open(format!("/proc/{process}/mem"));
        let memory = open().map_err(errno)?;
        let instruction = find(process, &memory)?;
        let stopped = ptrace::getregs(process)?;
        let mut this = Self { process, memory, stopped, instruction, space: 0 };
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        this.space =
            this.call(libc::SYS_mmap, [0, SPACE, word(access), word(kind), u64::MAX, 0])?;
        Ok(Some(this))
    }

    pub fn call(&self, number: c_long, arguments: [u64; 6]) -> Result<u64, Errno> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = libc::user_regs_struct {
            rip: self.instruction,
            rax: number.cast_unsigned(),
            // Marks the process as not in a system call, so that the kernel restarts none.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.stopped
        };
        ptrace::setregs(self.process, registers)?;
        ptrace::step(self.process, None)?;
        let WaitStatus::Stopped(_, Signal::SIGTRAP) = waitpid(self.process, None)? else {
            return Err(Errno::ESRCH);
        };
        let result = ptrace::getregs(self.process)?.rax;
        let error = result.wrapping_neg();
        if (1..=LAST_ERROR).contains(&error) {
            return Err(Errno::from_raw(i32::try_from(error).unwrap_or(libc::EINVAL)));
        }
        Ok(result)
    }

    /// Writes bytes into the process at this offset of its space. Returns their address.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let address = self.space + offset;
        self.memory.write_all_at(bytes, address).map_err(errno)?;
        Ok(address)
    }

    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.memory.read_exact_at(bytes, self.space + offset).map_err(errno)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        let _freed = self.call(libc::SYS_munmap, [self.space, SPACE, 0, 0, 0, 0]);
        let _as_it_was = ptrace::setregs(self.process, self.stopped);
        let _gone = ptrace::detach(self.process, None);
    }
}

/// Returns an argument as the kernel reads it.
pub(crate) fn word(number: i32) -> u64 {
    i64::from(number).cast_unsigned()
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

fn find(process: Pid, memory: &File) -> Result<u64, Errno> {
    let maps = File::open(format!("/proc/{process}/maps")).map_err(errno)?;
    for line in BufReader::new(maps).lines() {
        let line = line.map_err(errno)?;
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let numbers = [from, to].map(|number| u64::from_str_radix(number, 16));
        let ([Ok(from), Ok(to)], true) = (numbers, rest.starts_with("r-x")) else { continue };
        let mut code = vec![0; usize::try_from(to - from).unwrap_or(0)];
        if memory.read_exact_at(&mut code, from).is_err() {
            continue;
        }
        if let Some(at) = code.windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL) {
            return Ok(from + at as u64);
        }
    }
    Err(Errno::ENOEXEC)
}
