//! The contents of the host's config files.

#[derive(Default)]
pub(crate) struct ConfigFiles {
    /// PEM.
    pub(crate) agent_crt: Vec<u8>,
    /// PEM.
    pub(crate) agent_key: Vec<u8>,
    /// Certificate of the only accepted caller, PEM.
    pub(crate) server_crt: Vec<u8>,
    /// The host's address and certificate when it started the VM.
    pub(crate) agent_conf: Option<Vec<u8>>,
    /// Shares to mount, JSON.
    pub(crate) mounts: Option<Vec<u8>>,
    /// File name and contents of each file in `nics`, sorted by name.
    pub(crate) nics: Vec<(String, Vec<u8>)>,
    /// Name of the source, for log and status.
    pub(crate) from: String,
}
