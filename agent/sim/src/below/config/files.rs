//! The host's files, on a share that may appear late.

use std::path::Path;

use crate::below::here::here;
pub(crate) use crate::config::contents::{ConfigFiles, Unfit};
use crate::options::Options;
use crate::system::missing::Missing;

pub(crate) fn find(
    _: &Options,
    visit: &mut dyn FnMut(&Path, &ConfigFiles) -> Result<(), Unfit>,
) -> Result<ConfigFiles, Missing> {
    let here = here();
    if here.kernel.lacks_files.get() {
        return Err(Missing::Other("there is no share".into()));
    }
    let files = ConfigFiles {
        agent_crt: Vec::new(),
        agent_key: Vec::new(),
        server_crt: Vec::new(),
        agent_conf: here.conf.borrow().clone(),
        mounts: None,
        nics: Vec::new(),
        from: "the simulation".into(),
    };
    let visited = visit(Path::new("."), &files);
    visited.map(|()| files).map_err(|Unfit(why)| Missing::Other(why))
}
