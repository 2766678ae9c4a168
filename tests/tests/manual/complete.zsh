# Prints zsh's completions. zsh completes only on a terminal, so a second zsh runs on one, and its
# `compadd` prints its arguments.
zmodload zsh/zpty
folder=$(mktemp -d)
cp $1.zsh $folder/_${1:t}
cat >$folder/rc <<END
PS1=; unset zle_bracketed_paste; unsetopt prompt_cr beep
fpath=(${(q)folder} \$fpath); autoload -Uz compinit; compinit -D -u
bindkey '^I' complete-word
compadd() {
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "\$@"; return; fi
    local -a hits; builtin compadd -A hits "\$@"; print -lr -- \${hits/#/@@}; builtin compadd "\$@"
}
first() { print }; last() { print -r -- @@@; exit }
compprefuncs=(first) comppostfuncs=(last)
print -r -- start""ed
END
zpty shell zsh -f -i
zpty -w shell "source $folder/rc"
zpty -r shell line '*started*'
zpty -w -n shell "$2"$'\t'
zpty -r shell line '*@@@*'
rm -r $folder
for line in ${(f)line//$'\r'/}; do [[ $line != @@?* || $line == @@@ ]] || print -r -- ${line#@@}; done
