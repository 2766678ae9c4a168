//! Templates: files that the host renders and the guest installs, as `metadata.yaml` specifies
//! (P§1.7). The host renders only those that its trigger selects, so a template without an `.out`
//! file is skipped. `when` and `properties` concern only the host.

use alloc::string::String;

use crate::guest_path::Target;
use crate::yaml::{Event, Parser, Scalar, YamlError};

/// Maximum number of templates (images have about ten). The rest of a longer document is rejected.
pub const MAX_TEMPLATES: usize = 256;
/// Default mode of a new file.
const MODE: u32 = 0o644;

/// One entry of `templates`. Only Incus has the last three fields; defaults: 0, 0 and 0644.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Absolute path of the file to write.
    pub target: String,
    /// Name of the template: its content is in `files/NAME.out`.
    pub name: String,
    pub create_only: bool,
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of a new file.
    pub mode: u32,
}

/// Reads `metadata.yaml` and passes each template, or the error of an invalid entry, to `give`.
/// Errors: [`YamlError`] if the rest of the document cannot be read; earlier entries have been
/// passed.
pub fn each(
    metadata: &[u8],
    mut give: impl FnMut(Result<Template, YamlError>),
) -> Result<(), YamlError> {
    let mut parser = Parser::new(metadata)?;
    if !parser.begins_map()? {
        return Ok(());
    }
    let mut count = 0;
    while let Event::Scalar(key) = parser.step()? {
        if !key.is("templates") {
            parser.skip_next()?;
            continue;
        }
        if !parser.begins_map()? {
            continue;
        }
        while let Event::Scalar(target) = parser.step()? {
            count += 1;
            if count > MAX_TEMPLATES {
                return Err(parser.shape("at most 256 templates"));
            }
            give(entry(&mut parser, target)?);
        }
    }
    Ok(())
}

/// Reads one entry. The outer error ends the document, the inner one only this entry.
fn entry(
    parser: &mut Parser<'_>,
    target: Scalar<'_>,
) -> Result<Result<Template, YamlError>, YamlError> {
    let mut template = Template {
        target: target.string(),
        name: String::new(),
        create_only: false,
        uid: 0,
        gid: 0,
        mode: MODE,
    };
    let mut bad = None;
    let value = parser.step()?;
    if value != Event::Map {
        let bad = parser.shape("a map");
        parser.skip(value)?;
        return Ok(Err(bad));
    }
    while let Event::Scalar(key) = parser.step()? {
        let value = parser.step()?;
        if let Err(expected) = member(&mut template, key, value) {
            bad = Some(parser.shape(expected));
        }
        parser.skip(value)?;
    }
    // All real targets are absolute. LXD also rejects a name that is a path.
    if Target::absolute(&template.target).is_none() {
        bad = Some(parser.shape("an absolute path without '..'"));
    }
    if template.name.is_empty() || template.name.contains(['/', '\0']) {
        bad = Some(parser.shape("the name of a template"));
    }
    Ok(bad.map_or(Ok(template), Err))
}

fn member(template: &mut Template, key: Scalar<'_>, value: Event<'_>) -> Result<(), &'static str> {
    let scalar = match value {
        Event::Scalar(scalar) if !scalar.is_block() => Some(scalar),
        Event::Scalar(_) | Event::Map | Event::Seq | Event::End => None,
    };
    let given = scalar.filter(|scalar| !scalar.is_null()).map(|scalar| scalar.string());
    if key.is("template") {
        template.name = given.ok_or("the name of a template")?;
    } else if key.is("create_only") {
        let truth =
            scalar.and_then(|scalar| if scalar.is_null() { Some(false) } else { scalar.boolean() });
        template.create_only = truth.ok_or("true or false")?;
    } else if key.is("uid") || key.is("gid") {
        let id = match given.as_deref() {
            None | Some("") => 0,
            Some(id) => id.parse().map_err(|_| "a number")?,
        };
        *(if key.is("uid") { &mut template.uid } else { &mut template.gid }) = id;
    } else if key.is("mode") {
        template.mode = match given.as_deref() {
            None | Some("") => MODE,
            Some(mode) => octal(mode).ok_or("a mode")?,
        };
    }
    Ok(())
}

/// Parses a mode, always as octal: Incus reads four digits without a leading 0 as decimal, which
/// cannot be what the author meant. Keeps only the nine permission bits.
fn octal(mode: &str) -> Option<u32> {
    let digits = mode.strip_prefix("0o").unwrap_or(mode);
    let digits = digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit)).then_some(digits)?;
    u32::from_str_radix(digits, 8).ok().map(|mode| mode & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Why;

    fn read(metadata: &str) -> (Vec<Result<Template, YamlError>>, Result<(), YamlError>) {
        let mut all = Vec::new();
        let end = each(metadata.as_bytes(), |one| all.push(one));
        (all, end)
    }

    fn plain(target: &str, name: &str) -> Template {
        let (target, name) = (target.into(), name.into());
        Template { target, name, create_only: false, uid: 0, gid: 0, mode: 0o644 }
    }

    #[test]
    fn reads_entries_and_skips_the_rest() {
        let (all, end) = read(
            "architecture: x86_64\nproperties: {a: [b]}\ntemplates:\n  /etc/hostname:\n    when: \
             [create]\n    template: hostname.tpl\n    properties:\n      text: |\n        x: [\n  \
             \"/etc/my app\": {template: 'a', create_only: true, uid: 10, gid: \"20\", mode: 0600}\n\
             expiry: 1\n",
        );
        assert_eq!(end, Ok(()));
        let app = Template {
            create_only: true,
            uid: 10,
            gid: 20,
            mode: 0o600,
            ..plain("/etc/my app", "a")
        };
        assert_eq!(all, [Ok(plain("/etc/hostname", "hostname.tpl")), Ok(app)]);
        for none in ["", "templates:\n", "templates: {}", "a: b"] {
            assert_eq!(read(none), (Vec::new(), Ok(())), "{none}");
        }
    }

    #[test]
    fn an_invalid_entry_affects_no_other() {
        let bad = "../etc/x: {template: a}; etc/x: {template: a}; /etc/../x: {template: a}; \
             /: {template: a}; /x: {template: a/b}; /x: {template: }; /x: {}; /x: [template]; \
             /x: a; /x: {template: a, uid: root}; /x: {template: a, gid: -1}; \
             /x: {template: a, mode: rw}; /x: {template: a, mode: 0888}; \
             /x: {template: a, create_only: maybe}; /x: {template: [a]}"
            .split("; ");
        for entry in bad {
            let (all, end) = read(&format!("templates:\n  {entry}\n  /good: {{template: g}}\n"));
            assert_eq!(end, Ok(()), "{entry}");
            assert!(
                matches!(all[0], Err(YamlError { why: Why::Shape(_), .. })),
                "{entry}: {all:?}"
            );
            assert_eq!(all[1], Ok(plain("/good", "g")), "{entry}");
        }
    }

    #[test]
    fn returns_entries_before_an_error() {
        let (all, end) = read("templates:\n  /a: {template: a}\n  /b: {template: &x b}\n");
        assert_eq!(all, [Ok(plain("/a", "a"))]);
        assert_eq!(end, Err(YamlError { line: 3, why: Why::Unsupported("an anchor") }));
        assert!(read("- a").1.is_err() && read("templates: [a]").1.is_err());
        let many: String = (0..300).map(|at| format!("  /{at}: {{template: a}}\n")).collect();
        let (all, end) = read(&format!("templates:\n{many}"));
        assert!(end.is_err());
        assert_eq!(all.len(), MAX_TEMPLATES);
    }

    #[test]
    fn reads_octal_modes_with_or_without_a_leading_zero() {
        for (text, mode) in [
            ("755", Some(0o755)),
            ("0755", Some(0o755)),
            ("0o755", Some(0o755)),
            ("4755", Some(0o755)),
            ("0x1ff", None),
            ("9", None),
            ("+7", None),
        ] {
            assert_eq!(octal(text), mode, "{text}");
        }
    }
}
