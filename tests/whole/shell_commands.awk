# Prints the commands that shell scripts run: "FILE LINE command NAME" for each word in the place of a command, and
# "FILE LINE function NAME" for each function. awk -f tests/whole/shell_commands.awk SCRIPT...
#
# A tokenizer of the shell's grammar, as far as the scripts of this tree use it: quotes, expansions, here-documents, case,
# [[ ]], arrays, redirections. Looks into $(...), into what `sh -c`, `eval` and `trap` run, and past commands that run another
# (timeout, env, exec, check, ...). Leaves out words with a quote, an expansion or a slash. Makefiles are brought to scripts
# by test_commands.sh.

BEGIN {
    split("if then elif else while until do { ! time", list)
    for (i in list) before[list[i]] = 1 # a command follows
    split("done fi }", list)
    for (i in list) after[list[i]] = 1 # none does
    # Commands that run another: how many words stand before it, options not counted.
    split("exec 0 command 0 env 0 nice 0 nohup 0 setsid 0 sudo 0 xargs 0 unshare 0 timeout 1 flock 1 taskset 1 " \
          "check 1", list, " ")
    for (i = 1; (i + 1) in list; i += 2) words_before[list[i]] = list[i + 1]
    # Their options that have a value.
    split("timeout:-k timeout:-s env:-u nice:-n xargs:-n xargs:-P xargs:-I flock:-w", list)
    for (i in list) has_value[list[i]] = 1
}

FNR == 1 && NR > 1 { parse_file() }
FNR == 1 { file = FILENAME; text = "" }
FNR == 1 && /^#!/ { n = split($1, list, "/"); print file, 1, "command", list[n] }
{ text = text $0 "\n" }
END { if (NR > 0) parse_file() }

function parse_file() {
    size = length(text)
    pos = counted = line = 1
    nested = pending = level = 0
    closing = ""
    commands("")
}

function at(k) { return substr(text, pos + k, 1) }

# The line of pos. Strings that are parsed for themselves are on the line where they begin.
function line_now() {
    while (!nested && counted < pos)
        line += substr(text, counted++, 1) == "\n"
    return line
}

function skip_blanks() {
    while (at(0) == " " || at(0) == "\t" || (at(0) == "\\" && at(1) == "\n"))
        pos += at(0) == "\\" ? 2 : 1
}

# ---- Words ----

# Reads one word: `word` has its text, with $ for each expansion; `literal` is 1 when nothing in it was quoted or expanded.
function read_word(    c) {
    word = ""
    literal = 1
    while (pos <= size) {
        c = at(0)
        if (c == "(" && word ~ /^[A-Za-z_][A-Za-z0-9_]*\+?=$/) {
            pos++
            read_array()
            continue
        }
        if (index(" \t\n;|&<>()", c)) return
        if (c == "`" && closing == "`") return
        read_piece(c)
    }
}

function read_piece(c,    end) {
    if (c == "\\") {
        if (at(1) != "\n") word = word at(1)
        pos += 2
    } else if (c == "'") {
        end = index(substr(text, pos + 1), "'")
        word = word substr(text, pos + 1, end - 1)
        pos += end + 1
        literal = 0
    } else if (c == "\"") {
        pos++
        read_double()
        literal = 0
    } else if (c == "$" || c == "`") {
        expansion(0)
    } else {
        word = word c
        pos++
    }
}

function read_double(    c) {
    while (pos <= size && (c = at(0)) != "\"") {
        if (c == "\\") {
            word = word at(1)
            pos += 2
        } else if (c == "$" || c == "`") {
            expansion(1)
        } else {
            word = word c
            pos++
        }
    }
    pos++
}

function read_array(    kept) {
    kept = word
    while (pos <= size && at(0) != ")") {
        if (index(" \t\n", at(0))) pos++
        else if (at(0) == "#") skip_comment()
        else if (at(0) == "<" || at(0) == "(") pos++
        else read_word()
    }
    pos++
    word = kept "$"
    literal = 0
}

# What begins with $ or `.
function expansion(in_double,    c, kept, end) {
    kept = word
    c = at(1)
    if (at(0) == "`") {
        pos++
        commands("`")
    } else if (c == "(" && at(2) == "(") {
        pos += 3
        arithmetic(2)
    } else if (c == "(") {
        pos += 2
        commands(")")
    } else if (c == "{") {
        pos += 2
        parameter(in_double)
    } else if (c == "'" && !in_double) {
        for (pos += 2; pos <= size && at(0) != "'"; pos++)
            if (at(0) == "\\") pos++
        pos++
    } else if (match(substr(text, pos + 1, 80), /^[A-Za-z_][A-Za-z0-9_]*/)) {
        pos += 1 + RLENGTH
    } else {
        pos += index("@*#?-$!0123456789", c) && c != "" ? 2 : 1
    }
    word = kept "$"
    literal = 0
}

function arithmetic(depth) {
    while (pos <= size && depth > 0) {
        if (at(0) == "$" || at(0) == "`") {
            expansion(1)
            continue
        }
        depth += (at(0) == "(") - (at(0) == ")")
        pos++
    }
}

function parameter(in_double) {
    while (pos <= size && at(0) != "}") {
        if (at(0) == "\\") pos += 2
        else if (at(0) == "$" || at(0) == "`") expansion(in_double)
        else if (at(0) == "\"" || (at(0) == "'" && !in_double)) read_piece(at(0))
        else pos++
    }
    pos++
}

# ---- Redirections ----

function redirection(    dash) {
    if (substr(text, pos, 3) == "<<<") {
        pos += 3
    } else if (substr(text, pos, 2) == "<<") {
        pos += 2
        dash = at(0) == "-"
        pos += dash
        skip_blanks()
        read_word()
        pending++
        here_end[pending] = word
        here_dash[pending] = dash
        here_literal[pending] = !literal
        return
    } else if (at(1) == "(") {
        pos += 2
        commands(")")
        return
    } else {
        while (index("<>&|", at(0))) pos++
    }
    skip_blanks()
    if (at(0) != "<" && at(0) != ">") read_word()
}

# Here-documents begin on the line after theirs.
function here_documents(    i, end, rest, row, body) {
    for (i = 1; i <= pending; i++) {
        body = ""
        while (pos <= size) {
            rest = substr(text, pos)
            end = index(rest, "\n")
            row = substr(rest, 1, end - 1)
            pos += end
            if (here_dash[i]) sub(/^\t+/, "", row)
            if (row == here_end[i]) break
            body = body row "\n"
        }
        if (!here_literal[i]) expand(body)
    }
    pending = 0
}

# ---- Texts apart ----

function enter(apart) {
    line_now()
    depth++
    kept_text[depth] = text; kept_pos[depth] = pos; kept_size[depth] = size; kept_pending[depth] = pending
    text = apart; pos = 1; size = length(text); pending = 0
    nested++
}

function leave() {
    text = kept_text[depth]; pos = kept_pos[depth]; size = kept_size[depth]; pending = kept_pending[depth]
    depth--
    nested--
}

function expand(apart) {
    enter(apart)
    while (pos <= size) {
        if (at(0) == "\\") pos += 2
        else if (at(0) == "$" || at(0) == "`") expansion(1)
        else pos++
    }
    leave()
}

function parse_text(apart) {
    enter(apart)
    commands("")
    leave()
}

# ---- Commands ----

function skip_comment() {
    while (pos <= size && at(0) != "\n") pos++
}

# Reads commands up to `ender`: ")", "`" or the end of the text. Each level of $( ) and ( ) has a state of its own:
#   expecting  the next word is a command
#   cases      `case`s that are open
#   pattern    a pattern of a case is next
#   runs       the command that runs another, after `left` words
#   script     1: the next word is a script (eval, trap); 2: the word after -c is (sh)
function commands(ender) {
    level++
    cases[level] = pattern[level] = 0
    end_command()
    kept_ender[level] = closing
    closing = ender
    while (pos <= size && (pattern[level] || ender == "" || at(0) != ender))
        if (pattern[level]) take_pattern()
        else take_token()
    pos++
    closing = kept_ender[level]
    level--
}

function end_command() {
    expecting[level] = 1
    runs[level] = ""
    script[level] = left[level] = 0
}

function take_pattern() {
    if (at(0) == ")") {
        pattern[level] = 0
        end_command()
    }
    if (index("()| \t\n", at(0))) pos++
    else if (at(0) == "#") skip_comment()
    else {
        read_word()
        if (word == "esac" && literal) {
            cases[level]--
            pattern[level] = expecting[level] = 0
        }
    }
}

function take_token(    c, two) {
    c = at(0)
    two = substr(text, pos, 2)
    if (c == " " || c == "\t" || two == "\\\n") {
        skip_blanks()
    } else if (c == "#") {
        skip_comment()
    } else if (two != "&>" && index("\n;|&", c)) {
        take_separator(c, two)
    } else if (index("<>&", c)) {
        redirection()
    } else if (c == "(") {
        expecting[level] = 0
        pos += two == "((" ? 2 : 1
        if (two == "((") arithmetic(2)
        else commands(")")
    } else if (c == ")") {
        pos++
    } else {
        read_word()
        if (literal && word ~ /^[A-Za-z_][A-Za-z0-9_]*$/ && substr(text, pos, 2) == "()") {
            print file, line_now(), "function", word
            pos += 2
        } else if (!literal || word !~ /^[0-9]+$/ || !index("<>", at(0))) { # not a descriptor
            if (expecting[level]) take_word()
            else take_argument()
        }
    }
}

function take_separator(c, two) {
    pos++
    if (c == "\n" && pending) here_documents()
    if (two == ";;") {
        pos++
        pattern[level] = cases[level] > 0
    }
    end_command()
}

function take_argument() {
    if (script[level] == 1) {
        script[level] = 0
        parse_text(word)
    } else if (script[level] == 2 && word == "-c") {
        script[level] = 1
    } else if (word == "-exec") { # of find
        expecting[level] = 1
    }
}

# A word in the place of a command.
function take_word() {
    if (literal && word in before) return
    if (literal && take_keyword()) return
    if (word ~ /^[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=/) return
    if (runs[level] != "" && substr(word, 1, 1) == "-") {
        if (runs[level] == "command") expecting[level] = 0 # -v only asks whether it is there
        if ((runs[level] ":" word) in has_value) {
            skip_blanks()
            read_word()
        }
    } else if (left[level] > 0) {
        left[level]--
    } else {
        take_command(literal && word ~ /^[a-z_\[][A-Za-z0-9_.+-]*$/ ? word : "")
    }
}

function take_keyword() {
    if (word in after || word == "esac") {
        cases[level] -= word == "esac"
        expecting[level] = 0
    } else if (word == "case") {
        skip_blanks()
        read_word()
        while (index(" \t\n", at(0))) pos++
        read_word() # in
        cases[level]++
        pattern[level] = 1
    } else if (word == "for") {
        skip_blanks()
        if (substr(text, pos, 2) != "((") read_word()
        expecting[level] = 0
    } else if (word == "[[") {
        while (pos <= size && substr(text, pos, 2) != "]]")
            if (index(" \t\n;|&<>()", at(0))) pos++
            else read_word()
        pos += 2
        expecting[level] = 0
    } else {
        return 0
    }
    return 1
}

function take_command(name) {
    if (name != "") print file, line_now(), "command", name
    expecting[level] = name in words_before
    runs[level] = expecting[level] ? name : ""
    left[level] = expecting[level] ? words_before[name] : 0
    script[level] = name == "eval" || name == "trap" ? 1 : name ~ /^(sh|bash|dash)$/ ? 2 : 0
}
