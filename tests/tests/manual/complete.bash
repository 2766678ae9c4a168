# Prints bash's completions of a text. `$1` is the file, `$2` the text; the function is called as
# bash calls it.
source "$1.bash"
read -ra COMP_WORDS <<<"$2"
[ "${2% }" = "$2" ] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.* -F \([^ ]*\).*/\1/')
"$function" "${COMP_WORDS[0]}" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
