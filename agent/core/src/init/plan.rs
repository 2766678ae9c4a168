//! Configuration of process 1: `mote.NAME=VALUE` on the kernel's command line, and lines of
//! `/etc/mote-init`.

use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The file's path, below the root.
pub const FILE: &str = "etc/mote-init";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `argv`, at least one.
    pub arguments: Vec<CString>,
    pub respawn: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub agent: Vec<CString>,
    pub hostname: Option<String>,
    pub modules: Vec<String>,
    /// Programs in start order.
    pub programs: Vec<Program>,
    /// Errors, one per ignored word.
    pub troubles: Vec<String>,
}

impl Plan {
    /// Reads both sources. Host name, options and programs of the command line replace the file's.
    pub fn read(command_line: &str, file: &str) -> Self {
        let mut line = Self::default();
        let mut respawn = false;
        for (name, value) in parameters(command_line) {
            let Some(name) = name.strip_prefix("mote.") else { continue };
            respawn |= name == "respawn";
            if let Err(why) = line.take(name, value) {
                line.troubles.push(format!("mote.{name}: {why}"));
            }
        }
        line.programs.iter_mut().for_each(|program| program.respawn |= respawn);
        let mut all = Self::default();
        for (text, number) in file.lines().zip(1u32..) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (name, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            if let Err(why) = all.take(name, value) {
                all.troubles.push(format!("/{FILE}, line {number}: {why}"));
            }
        }
        all.overrule(line);
        all
    }

    /// Takes one word; returns why it is ignored.
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "agent" => self.agent = words(value)?,
            "hostname" if !value.is_empty() => self.hostname = Some(value.trim().to_owned()),
            "modules" => self
                .modules
                .extend(value.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned)),
            // On the command line, `respawn` applies to all programs of `mote.run`.
            "respawn" if matches!(value, "" | "yes") => {}
            "run" | "respawn" => {
                let arguments = words(value).map_err(|why| why + "; it is not started")?;
                if arguments.is_empty() {
                    return Err("there is no program".into());
                }
                self.programs.push(Program { arguments, respawn: name == "respawn" });
            }
            _ => return Err(format!("unknown word {name}")),
        }
        Ok(())
    }

    fn overrule(&mut self, other: Self) {
        if !other.agent.is_empty() {
            self.agent = other.agent;
        }
        if !other.programs.is_empty() {
            self.programs = other.programs;
        }
        self.hostname = other.hostname.or(self.hostname.take());
        self.modules.extend(other.modules);
        self.troubles.extend(other.troubles);
    }
}

/// Splits the kernel's command line into names and values, like the kernel: double quotes protect
/// spaces, and quotes around a value or a whole parameter are removed.
fn parameters(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut is_quoted = false;
    let ends = move |letter: char| {
        is_quoted ^= letter == '"';
        letter.is_ascii_whitespace() && !is_quoted
    };
    line.split(ends).filter(|word| !word.is_empty()).map(|word| {
        let word = bare(word);
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name, bare(value))
    })
}

/// Removes a quote at the beginning and then one at the end.
fn bare(text: &str) -> &str {
    let inner = text.strip_prefix('"');
    inner.map_or(text, |inner| inner.strip_suffix('"').unwrap_or(inner))
}

/// Splits a command into words. Both kinds of quotes group as in a shell; nothing else is special.
fn words(text: &str) -> Result<Vec<CString>, String> {
    let mut all = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    for letter in text.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, None) if letter.is_ascii_whitespace() => all.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(format!("unclosed quote in {text}"));
    }
    all.extend(word);
    let strings = all.into_iter().map(CString::new).collect::<Result<_, _>>();
    strings.map_err(|_| "it contains a NUL".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(plan: &Plan) -> Vec<(Vec<&str>, bool)> {
        let mut all = Vec::new();
        for program in &plan.programs {
            let texts = program.arguments.iter().map(|text| text.to_str().unwrap());
            all.push((texts.collect(), program.respawn));
        }
        all
    }

    #[test]
    fn reads_a_program_and_its_arguments() {
        let plan = Plan::read("mote.run=\"/bin/a 'b\" panic=-1", "");
        assert_eq!(programs(&plan), []);
        assert_eq!(plan.troubles, ["mote.run: unclosed quote in /bin/a 'b; it is not started"]);
        let plan = Plan::read("mote.run=\"/bin/a b 'c  d' 'e'f ''\" mote.run=/bin/g\n", "");
        let expected =
            [(["/bin/a", "b", "c  d", "ef", ""].into(), false), (["/bin/g"].into(), false)];
        assert_eq!(programs(&plan), expected);
        assert_eq!(plan.troubles, [""; 0]);
    }

    #[test]
    fn restarts_the_program_on_request() {
        for line in ["mote.respawn mote.run=/a", "mote.run=/a mote.respawn=yes", "mote.respawn=/a"]
        {
            assert_eq!(programs(&Plan::read(line, "")), [(["/a"].into(), true)], "{line}");
        }
        let file = "# what runs\n\nrun /a \"b c\"\n  respawn /d\nhostname vm1\nmodules virtio_net,9p\nagent --deny exec\n";
        let plan = Plan::read("quiet", file);
        assert_eq!(programs(&plan), [(["/a", "b c"].into(), false), (["/d"].into(), true)]);
        assert_eq!((plan.hostname.as_deref(), plan.modules.len()), (Some("vm1"), 2));
        assert_eq!(plan.agent, [c"--deny".to_owned(), c"exec".to_owned()]);
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let file = "run /a\nhostname one\nmodules x\n";
        let plan = Plan::read("mote.run=/b mote.hostname=two mote.modules=y,z mote.agent=-d", file);
        assert_eq!(programs(&plan), [(["/b"].into(), false)]);
        assert_eq!((plan.hostname.as_deref(), plan.agent.len()), (Some("two"), 1));
        assert_eq!(plan.modules, ["x", "y", "z"]);
    }

    #[test]
    fn reports_unknown_words_and_applies_the_rest() {
        let plan = Plan::read(
            "mote.rum=/a moat=1 mote.run=",
            "start /a\nrun /b\nrun 'c\nhostname\nrun a\0b\n",
        );
        assert_eq!(programs(&plan), [(["/b"].into(), false)]);
        let expected = [
            "/etc/mote-init, line 1: unknown word start",
            "/etc/mote-init, line 3: unclosed quote in 'c; it is not started",
            "/etc/mote-init, line 4: unknown word hostname",
            "/etc/mote-init, line 5: it contains a NUL; it is not started",
            "mote.rum: unknown word rum",
            "mote.run: there is no program",
        ];
        assert_eq!(plan.troubles, expected);
    }

    #[test]
    fn splits_parameters_like_the_kernel() {
        let cases: [(&str, &[(&str, &str)]); 5] = [
            ("a b=c", &[("a", ""), ("b", "c")]),
            ("  a=\"b c\"  d\n", &[("a", "b c"), ("d", "")]),
            ("\"a=b c\" d", &[("a", "b c"), ("d", "")]),
            ("a=b\"c d\"e f", &[("a", "b\"c d\"e"), ("f", "")]),
            ("a=\"b c", &[("a", "b c")]),
        ];
        for (line, expected) in cases {
            assert_eq!(parameters(line).collect::<Vec<_>>(), expected, "{line}");
        }
    }
}
