# Leaves out lines that are comments alone, of JavaScript and CSS: what browsers get of the pages. Each view is a dozen small files on a line that may be slow,
# and a fifth of them is for people who read the sources.
#
# A comment in the middle of a text in backticks would be a part of that text: it ends the build.
function refuse() {
  printf "lean: %s:%d: a line that looks like a comment, within backticks\n", FILENAME, FNR >"/dev/stderr"
  failed = 1
  exit 1
}
within { if (/\*\//) within = 0; next }
/^[ \t]*\/\// || /^[ \t]*\/\*([^*]|\*[^\/])*\*+\/[ \t]*$/ { if (ticks % 2) refuse(); next }
/^[ \t]*\/\*/ && !/\*\// { if (ticks % 2) refuse(); within = 1; next }
{
  line = $0
  ticks += gsub(/`/, "", line)
  print
}
END { exit failed }
