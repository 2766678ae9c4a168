//! `mote-sink PORT FILE RECORDS`: accepts one connection on that vsock port, opens this number of
//! TLS 1.3 records and writes their content to the file: an upper bound for the speed of uploads to
//! this guest. The first byte selects the cipher: `A` for AES-256-GCM, `C` for ChaCha20-Poly1305,
//! which TLS chooses if the CPU has no AES.

use std::fs::File;
use std::io::{BufReader, Error, Read, Result, Write};
use std::process::ExitCode;

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use vsock::{VMADDR_CID_ANY, VsockListener};

/// A sealed record: 16 KiB and the tag.
const RECORD: usize = 16 * 1024 + 16;
/// Bytes requested from the kernel per read.
const READ: usize = 256 * 1024;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, file, records] = args.as_slice() else { return ExitCode::from(2) };
    let (Ok(port), Ok(records)) = (port.parse(), records.parse()) else { return ExitCode::from(2) };
    match sink(port, file, records) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-sink: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sink(port: u32, file: &str, count: u64) -> Result<()> {
    let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port)?;
    let mut file = File::create(file)?;
    let (mut socket, _) = listener.accept()?;
    let (name, algorithm) =
        if has_aes() { (b'A', &AES_256_GCM) } else { (b'C', &CHACHA20_POLY1305) };
    let wrong = |_| Error::other("a record that is not sealed as agreed");
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &[0; 32]).map_err(wrong)?);
    socket.write_all(&[name])?;
    let mut records = BufReader::with_capacity(READ, socket.try_clone()?);
    let mut record = vec![0; RECORD];
    for number in 0..count {
        records.read_exact(&mut record)?;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let held = key.open_in_place(nonce, Aad::empty(), &mut record).map_err(wrong)?;
        file.write_all(held)?;
    }
    // All is written.
    socket.write_all(b".")
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_aes() -> bool {
    true
}
