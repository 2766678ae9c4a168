//! The host's files, on a share that may come late.

use std::path::Path;

use crate::below::here::here;
use crate::options::Options;
use crate::system::missing::Missing;

pub(crate) struct ConfigFiles {
    pub(crate) agent_key: Vec<u8>,
    pub(crate) agent_conf: Option<Vec<u8>>,
    pub(crate) mounts: Option<Vec<u8>>,
    pub(crate) nics: Vec<(String, Vec<u8>)>,
    pub(crate) from: String,
}

/// Why whoever looks at the files cannot use them.
pub(crate) struct Unfit(pub(crate) String);

pub(crate) fn find(
    _: &Options,
    visit: &mut dyn FnMut(&Path, &ConfigFiles) -> Result<(), Unfit>,
) -> Result<ConfigFiles, Missing> {
    let here = here();
    if here.kernel.lacks_files.get() {
        return Err(Missing::Other("there is no share".into()));
    }
    let files = ConfigFiles {
        agent_key: Vec::new(),
        agent_conf: here.conf.borrow().clone(),
        mounts: None,
        nics: Vec::new(),
        from: "the simulation".into(),
    };
    let visited = visit(Path::new("."), &files);
    visited.map(|()| files).map_err(|Unfit(why)| Missing::Other(why))
}
