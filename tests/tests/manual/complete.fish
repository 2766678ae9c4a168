# Prints fish's completions, which have a description after a tab.
source $argv[1].fish
complete -C $argv[2] | string replace -r '\t.*' ''
