//! The manual pages and completions of the packages match the programs' help.

use mote_core::hostapi::policy::loopholes::COMBINATIONS;
use mote_tests::pages::{between, committed, hold, write};
use mote_tests::prelude::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../image/packages");
const EXAMPLE: &str = include_str!("../../image/packages/mote-agent.yml");

/// Returns a manual page as the packages contain it.
fn page(name: &str) -> String {
    let output = Command::new(format!("{FOLDER}/page")).args([name, "1.2", "May 3"]).output();
    let output = output.expect("image/packages/page");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn help() -> String {
    let output = Command::new(agent()).arg("--help").output().expect("the agent");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the first words of the items between two headings of the help.
fn items(help: &str, from: &str) -> BTreeSet<String> {
    let (_, part) = help.split_once(from).expect("the heading");
    let part = part.split_once("\n\n").map_or(part, |(part, _)| part);
    let begins = part.lines().filter_map(|line| line.strip_prefix("  "));
    let begins = begins.filter(|line| !line.starts_with(' '));
    begins.map(|line| line.split_once("  ").map_or(line, |(item, _)| item).to_owned()).collect()
}

/// Returns the options among these items, without their first dash.
fn options_of(items: &BTreeSet<String>) -> BTreeSet<String> {
    let words = items.iter().flat_map(|item| item.split([' ', ',']));
    words.filter_map(|word| word.strip_prefix('-')).map(str::to_owned).collect()
}

fn options(help: &str) -> BTreeSet<String> {
    options_of(&items(help, "Options:\n"))
}

/// Returns the items between two headings of a manual page, without fonts and quotes.
fn page_items(page: &str, from: &str, to: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("\n.SH {from}\n")).expect("the section");
    let (section, _) = section.split_once(to).expect("its end");
    let items = section.lines().filter_map(|line| line.strip_prefix(".IP "));
    let plain = |item: &str| {
        let marks = ["\\fB", "\\fI", "\\fR", "\\", "\""];
        marks.iter().fold(item.to_owned(), |item, mark| item.replace(mark, ""))
    };
    items.map(plain).collect()
}

fn features(help: &str) -> Vec<String> {
    let (_, features) = help.split_once("--deny LIST").expect("features");
    let (features, _) = features.split_once("; separated").expect("their end");
    let features = features.replace("(also configures cloud-init)", "");
    let features = features.split_once(':').expect("a colon").1.split(',');
    features.map(|feature| feature.trim().to_owned()).collect()
}

fn word(text: &str) -> String {
    text.split([' ', ',']).next().unwrap_or_default().to_owned()
}

#[test]
fn the_page_has_exactly_the_options_of_the_help() {
    let help = help();
    let has = options(&help);
    assert!(has.len() > 15, "{has:?}");
    assert_eq!(has, options_of(&page_items(&page("mote-agent.8"), "OPTIONS", "\n.SH ")));
}

#[test]
fn the_page_has_exactly_the_commands_of_the_help() {
    let help = help();
    let commands: BTreeSet<_> = items(&help, "Commands:\n").iter().map(|item| word(item)).collect();
    assert!(commands.len() > 8, "{commands:?}");
    let page = page_items(&page("mote-agent.8"), "COMMANDS", "\n.SH ");
    assert_eq!(commands, page.iter().map(|item| word(item)).collect());
}

#[test]
fn the_pages_have_the_features_and_exit_codes_of_the_help() {
    let (help, page) = (help(), page("mote-agent.8"));
    let (_, codes) = help.split_once("Exit codes: ").expect("exit codes");
    assert!(page.contains(codes.trim()), "{codes}");
    let features = features(&help);
    assert_eq!(features.len(), 13, "{features:?}");
    // A comment in the example explains each.
    let items = EXAMPLE.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": "));
    let items = items.filter(|(name, value)| !name.starts_with('#') && value.contains(" # "));
    let items: BTreeSet<_> = items.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(features.into_iter().collect::<BTreeSet<_>>(), items);
}

#[test]
fn the_example_policy_is_valid_with_and_without_its_limits() {
    assert!(page("mote-agent.yml.5").contains(EXAMPLE));
    // A comment that is text begins with `#` and exactly one space.
    let starts_text = |code: &str| code.starts_with(' ') && !code.starts_with("  ");
    let limited =
        EXAMPLE.lines().filter(|line| !line.ends_with("limits:") && !line.ends_with("too:"));
    let limited: Vec<_> = limited
        .map(|line| match line.split_once('#') {
            Some((indent, code)) if indent.trim().is_empty() && !starts_text(code) => {
                format!("{indent}{code}")
            }
            _ => line.to_owned(),
        })
        .collect();
    for (policy, denied) in [
        (EXAMPLE, "exec files mounts port-forward templates first-boot power"),
        (&limited.join("\n"), "mounts templates first-boot power"),
    ] {
        let scratch = Scratch::new();
        put(scratch.0.join("etc/mote-agent.yml"), policy);
        let output = Command::new(agent()).arg("--check").arg("--root").arg(&scratch.0).output();
        let text = String::from_utf8_lossy(&output.expect("the agent").stdout).into_owned();
        let said = text.lines().find(|line| line.contains("policy: ")).expect("the policy");
        assert!(said.contains(&format!("policy: denied: {denied}")), "{said}\n{policy}");
    }
}

fn set(words: &str) -> BTreeSet<String> {
    words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

type Shell<'a> = (&'a [&'a str], &'a str);

const SHELLS: [Shell<'_>; 3] = [
    (&["bash", "-c"], include_str!("manual/complete.bash")),
    (&["fish"], include_str!("manual/complete.fish")),
    (&["zsh", "-fc"], include_str!("manual/complete.zsh")),
];

fn offered((shell, script): Shell<'_>, file: &str, program: &Path, text: &str) -> BTreeSet<String> {
    let directory = program.parent().expect("a directory");
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).args([script, "-", file, text]);
    if shell[0] == "fish" {
        // fish does not take its own name as an argument.
        command = Command::new("fish");
        command.args(["--no-config", "-c", script, file, text]);
    }
    let output = command.env("PATH", format!("{}:/usr/bin:/bin", directory.display())).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", shell[0]));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn completes_what_the_help_has(shell: Shell<'_>) {
    let file = format!("{FOLDER}/mote-agent");
    let offers = |text: &str| offered(shell, &file, &agent(), &format!("mote-agent {text}"));
    assert_eq!(offers("me"), set("metadata"));
    assert_eq!(offers("--inter"), {
        set("--interval-connect --interval-started --interval-connected")
    });
    assert_eq!(offers("--flavour lxd"), set("lxd lxd-5.0"));
    assert_eq!(offers("report "), set("state metrics"));
    let help = help();
    let long = options(&help).into_iter().filter(|name| name.starts_with('-'));
    let long: BTreeSet<_> = long.map(|name| format!("-{name}")).collect();
    assert_eq!(offers("--"), long);
    let commands: BTreeSet<_> = items(&help, "Commands:\n").iter().map(|item| word(item)).collect();
    assert_eq!(commands, offers("").into_iter().filter(|word| !word.starts_with('-')).collect());
    assert_eq!(offers("--deny "), features(&help).into_iter().collect());
}

#[test]
fn each_shell_completes_the_words_of_the_help() {
    SHELLS.into_iter().for_each(completes_what_the_help_has);
}

#[test]
fn mote_host_writes_a_page_for_each_of_its_commands() {
    let scratch = Scratch::new();
    let host = tool("MOTE_HOST", "target/debug/mote-host");
    let output = Command::new(&host).arg("man").arg(&scratch.0).output().expect("mote-host");
    assert!(output.status.success(), "{output:?}");
    let page = scratch.0.join("mote-host-exec.1");
    let page = fs::read_to_string(page).expect("a command's page");
    for heading in ["EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO"] {
        let quoted = page.contains(&format!(".SH \"{heading}\""));
        assert!(quoted || page.contains(&format!(".SH {heading}\n")), "{heading}: {page}");
    }
    let all = fs::read_dir(&scratch.0).expect("the pages").count();
    assert_eq!(all, 36, "pages of mote-host, file and the commands of both");
    let page = fs::read_to_string(scratch.0.join("mote-host.1")).expect("the main page");
    assert!(page.contains("\\-\\-dir") && page.contains("MOTE_HOST_DIR"), "{page}");
}

#[test]
fn the_guide_covers_each_combination() {
    let mut table = "| policy | the host can still | warning |\n| --- | --- | --- |\n".to_owned();
    for row in COMBINATIONS {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}` ") };
        table += &format!("| {}| {} | {}|\n", code(row.file), row.host, code(row.warning));
    }
    let marks = ["<!-- combinations:begin -->\n", "<!-- combinations:end -->"];
    let page = between(&committed("results/loopholes.md"), marks, &table);
    write("results/loopholes.md", &page);
    hold("results/loopholes.md", &page);
}
