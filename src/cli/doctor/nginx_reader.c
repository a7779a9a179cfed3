/*
 * Reads an nginx configuration as `nginx -T` prints it: its files, its syntax, its blocks and its
 * variables.
 */
#include "cli/doctor/nginx_reader.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/doctor/doctor_nginx.h"
#include "loop/spawn.h"

/*
 * Reads nginx's syntax in place: a word is never longer than its source. Cannot fail: a text that
 * is not nginx's ends early, or gives odd words.
 */

/*
 * Runs nginx -T with -V. Fails if nginx cannot be started; kills it after a minute.
 */

#define DUMP_MAX (32 << 20)
#define PATIENCE_MS 60000

static int nginx_dump_wait(pid_t pid) {
    int status = 0;

    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

/* Returns the content of the file, owned by the caller; NULL without memory, or if it is longer
   than DUMP_MAX. */
static char *nginx_dump_file_text(FILE *file, size_t *ret_len) {
    long len = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *text = len < 0 || len > DUMP_MAX ? NULL : calloc(1, (size_t)len + 1);

    rewind(file);
    if (text != NULL)
        *ret_len = fread(text, 1, (size_t)len, file);
    return text;
}

/* The workers' user if the configuration sets none: the one in the output of nginx -V, or nginx's
   own default. */
static void nginx_dump_compiled_user(FILE *err, char ret[NGINX_USER]) {
    size_t len;
    char *output = nginx_dump_file_text(err, &len),
         *at = output == NULL ? NULL : strstr(output, " --user=");

    if (at != NULL) {
        at += strlen(" --user=");
        snprintf(ret, NGINX_USER, "%.*s", (int)strcspn(at, " \n"), at);
    } else {
        snprintf(ret, NGINX_USER, "nobody");
    }
    free(output);
}

/* The last error in nginx's output, without level and process. */
static const char *nginx_dump_last_error(char *text) {
    const char *found = "it wrote no error";
    char *line, *level;

    while ((line = strsep(&text, "\n")) != NULL) {
        level = strstr(line, "[emerg] ");
        if (level == NULL)
            continue;
        found = level + strlen("[emerg] ");
        if (found[strspn(found, "0123456789#")] == ':')
            found = strchr(found, ' ') == NULL ? found : strchr(found, ' ') + 1;
    }
    return found;
}

char *nginx_dump(struct doctor *d, const char *path, size_t *ret_len, char ret_user[NGINX_USER],
                 int *ret_status) {
    const char *exe = d->values->nginx_exe == NULL ? "nginx" : d->values->nginx_exe;
    char *argv[] = {(char *)exe, "-V", "-T", "-c", (char *)path, NULL}, *text = NULL,
         *output = NULL;
    FILE *out = tmpfile(), *err = tmpfile();
    size_t output_len;
    pid_t pid;
    int rc = out == NULL || err == NULL ? errno : 0;

    if (rc == 0)
        rc = spawn_start(&(struct spawn){.argv = argv,
                                         .env = environ,
                                         .fds = {-1, fileno(out), fileno(err)},
                                         .not_after = INT64_MAX},
                         &pid);
    *ret_status = CLI_OK;
    if (rc != 0) {
        cli_message("doctor: cannot start %s: %s; set its path with --nginx-exe", exe,
                    strerror(rc));
        *ret_status = CLI_NOT_FOUND;
    } else if (nginx_dump_wait(pid) == 0) {
        text = nginx_dump_file_text(out, ret_len);
        nginx_dump_compiled_user(err, ret_user);
        if (text == NULL)
            doctor_find(d, DOCTOR_UNSAFE, path, "limits", "examine its parts one by one",
                        "nginx -T writes more than %d MiB of it, or than there is memory for: "
                        "nothing of it is known",
                        DUMP_MAX >> 20);
    } else {
        output = nginx_dump_file_text(err, &output_len);
        doctor_find(d, DOCTOR_BROKEN, path, "nginx", "nginx -t -c FILE shows all of it",
                    "nginx refuses the configuration: %s",
                    output == NULL ? "" : nginx_dump_last_error(output));
        free(output);
    }
    if (out != NULL)
        fclose(out);
    if (err != NULL)
        fclose(err);
    return text;
}

static bool nginx_reader_is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips spaces and comments. */
static void nginx_reader_skip_space(struct nginx_reader *r) {
    while (r->at < r->end) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else if (nginx_reader_is_space(*r->at))
            r->at++;
        else
            return;
    }
}

/* The character that nginx makes of a backslash and `c`; false: both stay as they are. */
static bool nginx_reader_unescape(char c, char *ret) {
    static const char from[] = "\"'\\trn", to[] = "\"'\\\t\r\n";
    const char *found = c == '\0' ? NULL : strchr(from, c);

    if (found == NULL)
        return false;
    *ret = to[found - from];
    return true;
}

/* Copies one character, which a backslash may escape, to *to, and moves both positions. */
static void nginx_reader_copy_character(struct nginx_reader *r, char **to) {
    char c;

    if (*r->at == '\\' && r->at + 1 < r->end) {
        if (nginx_reader_unescape(r->at[1], &c)) {
            *(*to)++ = c;
            r->at += 2;
            return;
        }
        *(*to)++ = *r->at++;
    }
    *(*to)++ = *r->at++;
}

/* Reads a word, and writes a NUL at its end; *ret_ends is the character that ended it. NULL: the
   text ends within the word. */
static char *nginx_reader_word(struct nginx_reader *r, char *ret_ends) {
    char quote = *r->at == '"' || *r->at == '\'' ? *r->at++ : '\0', *begin = r->at, *to = begin;
    bool variable = false; /* ${ opens no block */

    for (; r->at < r->end; nginx_reader_copy_character(r, &to)) {
        if (quote != '\0'
                ? *r->at == quote
                : nginx_reader_is_space(*r->at) || *r->at == ';' || (*r->at == '{' && !variable))
            break;
        variable = *r->at == '$';
    }
    if (r->at >= r->end)
        return NULL;
    *ret_ends = *r->at++;
    *to = '\0';
    return begin;
}

/* Skips to behind the brace that closes the block. */
static void nginx_reader_skip_block(struct nginx_reader *r) {
    for (int depth = 1; r->at < r->end && depth > 0; r->at++)
        depth += (*r->at == '{') - (*r->at == '}');
}

static bool nginx_reader_is_lua(const char *name) {
    static const char end[] = "_by_lua_block";
    size_t len = strlen(name);

    return len >= strlen(end) && strcmp(name + len - strlen(end), end) == 0;
}

/* Returns true if `c` ends the directive, which has words by then; false: another word follows. */
static bool nginx_reader_directive_ends(struct nginx_reader *r, char c,
                                        const struct nginx_directive *directive,
                                        enum nginx_what *ret) {
    if (c == ';') {
        *ret = NGINX_DIRECTIVE;
        return true;
    }
    if (c != '{')
        return false;
    *ret = NGINX_BLOCK;
    if (nginx_reader_is_lua(directive->words[0])) {
        nginx_reader_skip_block(r);
        *ret = NGINX_DIRECTIVE;
    }
    return true;
}

enum nginx_what nginx_next(struct nginx_reader *r, struct nginx_directive *ret) {
    enum nginx_what what;
    char end, *next;

    ret->n = 0;
    for (;;) {
        nginx_reader_skip_space(r);
        if (r->at >= r->end)
            return NGINX_END;
        if (*r->at == '}' && ret->n == 0) {
            r->at++;
            return NGINX_BLOCK_END;
        }
        end = *r->at;
        if (end == ';' || end == '{') {
            r->at++;
            if (ret->n != 0 && nginx_reader_directive_ends(r, end, ret, &what))
                return what;
            continue; /* a block or directive without a name */
        }
        next = nginx_reader_word(r, &end);
        if (next == NULL)
            return NGINX_END;
        if (ret->n < NGINX_WORDS_MAX)
            ret->words[ret->n++] = next;
        if (nginx_reader_directive_ends(r, end, ret, &what))
            return what;
    }
}

/*
 * Builds the tree of blocks from a dump's files, each read where it is included. Fails without
 * memory; blocks or includes beyond the limits are left out, and `cut` is set.
 */

#define FILES_MAX 1024
#define VISITS_MAX 4096
#define MEMORY_MAX ((size_t)256 << 20)

/* One file of a dump. */
struct file {
    const char *name;
    char *text, *end;
};

struct walk {
    struct nginx_tree *tree;
    const char *path; /* of the main configuration file */
    struct file files[FILES_MAX];
    size_t files_n;
    unsigned visits, depth;
    int failed;
};

static const struct {
    const char *name;
    enum nginx_word word;
} watched[] = {
    {"auth_basic", AUTH_BASIC},
    {"auth_basic_user_file", AUTH_BASIC_FILE},
    {"auth_request", AUTH_REQUEST},
    {"auth_jwt", AUTH_JWT},
    {"ssl_verify_client", VERIFY_CLIENT},
    {"satisfy", SATISFY},
    {"idem_enforce", ENFORCE},
    {"idem_label", LABEL},
    {"idem_probe", PROBE},
    {"idem_scope", SCOPE},
    {"idem_store", STORE},
    {"proxy_http_version", HTTP_VERSION},
    {"server_name", SERVER_NAME},
    {"proxy_pass", PROXY_PASS},
    {"internal", INTERNAL},
    {"idem_token", TOKEN},
    {"idem_js", JS},
    {"idem_status", STATUS},
    {"idem_admin", ADMIN},
};

static void walk_files_split(struct walk *walk, char *text, char *end) {
    static const char mark[] = "# configuration file ";
    char *line = text, *next, *colon;
    struct file *file = NULL;

    for (; line < end; line = next) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next == NULL ? end : next + 1;
        if (!idem_text_begins(line, mark) || next - line < 3 || next[-2] != ':')
            continue;
        if (file != NULL)
            file->end = line;
        walk->tree->cut |= walk->files_n == FILES_MAX;
        if (walk->files_n == FILES_MAX)
            return;
        colon = next - 2;
        *colon = '\0';
        file = &walk->files[walk->files_n++];
        *file = (struct file){line + strlen(mark), next, end};
    }
}

/* The directives of a block. */

static void nginx_scope_set_policy(struct nginx_scope *scope,
                                   const struct nginx_directive *directive) {
    static const char *const others[] = {"key", "fingerprint",
                                         NULL}; /* their directives have forms of their own */
    const char *word = directive->words[0];

    if (strcmp(word, "idem") == 0)
        word = "idem_mode";
    if (!idem_text_begins(word, "idem_") || directive->n < 2)
        return;
    word += 5;
    for (size_t i = 0; others[i] != NULL; i++)
        if (strcmp(word, others[i]) == 0)
            return;
    if (strcmp(word, "mode") == 0 || strcmp(word, "preset") == 0) {
        scope->guards = true;
        scope->off |= strcmp(directive->words[1], "off") == 0;
    }
    (void)idem_policy_set(&scope->layer, word, strlen(word), directive->words[1],
                          strlen(directive->words[1]), NULL);
}

/* True for an address of `allow` that admits all clients, or a network nearly as large. */
static bool nginx_tree_is_any_address(const char *address) {
    const char *slash = strchr(address, '/');

    return strcmp(address, "all") == 0 || (slash != NULL && strtol(slash + 1, NULL, 10) < 4);
}

static void nginx_scope_set_access(struct nginx_scope *scope,
                                   const struct nginx_directive *directive) {
    bool allow = strcmp(directive->words[0], "allow") == 0;

    if (directive->n < 2 || (!allow && strcmp(directive->words[0], "deny") != 0))
        return;
    if (scope->access == ACCESS_UNSAID)
        scope->access = ACCESS_SOME;
    if (scope->access != ACCESS_SOME) /* an earlier directive matches every address */
        return;
    if (allow && nginx_tree_is_any_address(directive->words[1]))
        scope->access = ACCESS_ALL;
    else if (!allow && strcmp(directive->words[1], "all") == 0)
        scope->access = ACCESS_CLOSED;
}

static void walk_add_set(struct walk *walk, struct nginx_scope *scope, const char *name,
                         const char *value, bool map) {
    struct nginx_set *set = idem_arena_alloc(&walk->tree->arena, sizeof(*set));

    if (scope->condition != NULL)
        scope = scope->outer;
    if (set == NULL) {
        walk->failed = IDEM_E_NOMEM;
        return;
    }
    *set = (struct nginx_set){scope->sets, name, value, map};
    scope->sets = set;
}

static void walk_read_directive(struct walk *walk, struct nginx_scope *scope,
                                const struct nginx_directive *directive) {
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        if (strcmp(directive->words[0], watched[i].name) == 0)
            scope->values[watched[i].word] = directive->n > 1 ? directive->words[1] : "";
    if (strcmp(directive->words[0], "idem_admin") == 0)
        for (size_t i = 1; i < directive->n; i++)
            scope->admin_all |= idem_text_begins(directive->words[i], "allow=") &&
                                nginx_tree_is_any_address(directive->words[i] + 6);
    if (strcmp(directive->words[0], "user") == 0 && directive->n > 1 && scope->outer == NULL) {
        walk->tree->user = directive->words[1];
        walk->tree->group = directive->n > 2 ? directive->words[2] : NULL;
    }
    if (strcmp(directive->words[0], "set") == 0 && directive->n > 2)
        walk_add_set(walk, scope, directive->words[1], directive->words[2], false);
    if (strcmp(directive->words[0], "idem_set") == 0 && directive->n > 2) /* it reads the request */
        walk_add_set(walk, scope, directive->words[1], "$request_body", false);
    scope->mentions_idem |= idem_text_begins(directive->words[0], "idem");
    nginx_scope_set_access(scope, directive);
    nginx_scope_set_policy(scope, directive);
}

/* Blocks. */

static struct nginx_scope *walk_scope_new(struct walk *walk, struct nginx_scope *outer) {
    struct nginx_scope *scope = idem_arena_alloc(&walk->tree->arena, sizeof(*scope));

    if (scope == NULL) {
        walk->failed = IDEM_E_NOMEM;
        return NULL;
    }
    *scope = (struct nginx_scope){.outer = outer};
    *walk->tree->last = scope;
    walk->tree->last = &scope->next;
    return scope;
}

/* Joins the words after the name with blanks; NULL without memory. */
static const char *walk_words_join(struct walk *walk, const struct nginx_directive *directive) {
    size_t len = 1;
    char *text;

    for (size_t i = 1; i < directive->n; i++)
        len += strlen(directive->words[i]) + 1;
    text = idem_arena_alloc(&walk->tree->arena, len);
    if (text == NULL) {
        walk->failed = IDEM_E_NOMEM;
        return NULL;
    }
    text[0] = '\0';
    for (size_t i = 1, at = 0; i < directive->n; i++)
        at += (size_t)snprintf(text + at, len - at, "%s%s", i == 1 ? "" : " ", directive->words[i]);
    return text;
}

static bool nginx_directive_has_word(const struct nginx_directive *directive, const char *word) {
    for (size_t i = 1; i < directive->n; i++)
        if (strcmp(directive->words[i], word) == 0)
            return true;
    return false;
}

/* Opens the scope of a block, and reads the words before its brace. Where limit_except is about a
   POST, its directives are those of the location; otherwise they are left out (NULL). */
static struct nginx_scope *walk_scope_open(struct walk *walk, struct nginx_scope *outer,
                                           const struct nginx_directive *directive) {
    bool limit = strcmp(directive->words[0], "limit_except") == 0;
    struct nginx_scope *scope;

    if (limit)
        return nginx_directive_has_word(directive, "POST") ? NULL : outer;
    scope = walk_scope_new(walk, outer);

    if (scope == NULL)
        return NULL;
    if (strcmp(directive->words[0], "location") == 0 && directive->n > 1) {
        scope->location = directive->words[directive->n - 1];
    } else if (strcmp(directive->words[0], "if") == 0) {
        scope->location = outer->location;
        scope->condition = walk_words_join(walk, directive);
    } else if (strcmp(directive->words[0], "map") == 0 && directive->n > 2) {
        walk_add_set(walk, outer, directive->words[2], directive->words[1], true);
    }
    return scope;
}

static void walk_file(struct walk *walk, const struct file *file, struct nginx_scope *scope);

static void walk_include(struct walk *walk, const char *pattern, struct nginx_scope *scope) {
    const char *slash = strrchr(walk->path, '/');
    char whole[PATH_MAX];

    if (pattern[0] == '/' || slash == NULL)
        snprintf(whole, sizeof(whole), "%s", pattern);
    else
        snprintf(whole, sizeof(whole), "%.*s/%s", (int)(slash - walk->path), walk->path, pattern);
    for (size_t i = 0; i < walk->files_n; i++)
        if (fnmatch(whole, walk->files[i].name, FNM_PATHNAME) == 0)
            walk_file(walk, &walk->files[i], scope);
}

/* Reads to the end of a block; a block whose scope is NULL is skipped. */
static void walk_block(struct walk *walk, struct nginx_reader *reader, struct nginx_scope *scope) {
    struct nginx_scope *inner;
    struct nginx_directive directive;
    enum nginx_what what;

    if (walk->depth >= NGINX_DEPTH_MAX) { /* beyond nginx's own limit: the rest is left out */
        walk->tree->cut = true;
        reader->at = reader->end;
        return;
    }
    walk->depth++;
    while ((what = nginx_next(reader, &directive)) != NGINX_END && what != NGINX_BLOCK_END) {
        if (what == NGINX_BLOCK) {
            inner = scope == NULL ? NULL : walk_scope_open(walk, scope, &directive);
            walk_block(walk, reader, inner);
        } else if (scope != NULL && strcmp(directive.words[0], "include") == 0 && directive.n > 1) {
            walk_include(walk, directive.words[1], scope);
        } else if (scope != NULL) {
            walk_read_directive(walk, scope, &directive);
        }
    }
    walk->depth--;
}

/* A file may be included several times: each time a copy is read. */
static void walk_file(struct walk *walk, const struct file *file, struct nginx_scope *scope) {
    size_t len = (size_t)(file->end - file->text);
    struct nginx_reader reader;
    char *copy;

    walk->tree->cut |= walk->visits >= VISITS_MAX;
    if (walk->visits++ >= VISITS_MAX)
        return;
    copy = idem_arena_alloc(&walk->tree->arena, len + 1);
    if (copy == NULL) {
        walk->failed = IDEM_E_NOMEM;
        return;
    }
    memcpy(copy, file->text, len);
    reader = (struct nginx_reader){copy, copy + len};
    walk_block(walk, &reader, scope);
}

int nginx_tree_read(struct nginx_tree *tree, const char *path, char *text, size_t len) {
    struct walk *walk;
    struct nginx_scope *outermost;

    *tree = (struct nginx_tree){.last = &tree->first};
    idem_arena_init(&tree->arena, MEMORY_MAX);
    walk = idem_arena_alloc(&tree->arena, sizeof(*walk));
    if (walk == NULL)
        return IDEM_E_NOMEM;
    *walk = (struct walk){.tree = tree, .path = path};
    walk_files_split(walk, text, text + len);
    outermost = walk_scope_new(walk, NULL);
    if (outermost != NULL && walk->files_n > 0)
        walk_file(walk, &walk->files[0], outermost);
    return walk->failed;
}

void nginx_tree_release(struct nginx_tree *tree) {
    for (struct nginx_scope *scope = tree->first; scope != NULL; scope = scope->next)
        idem_policy_release(&scope->layer);
    idem_arena_free(&tree->arena);
}

/* Values in force. */

const char *nginx_value(const struct nginx_scope *scope, enum nginx_word word) {
    if (word >= PROXY_PASS && scope->condition != NULL && scope->values[word] == NULL)
        scope = scope->outer;
    if (word >= PROXY_PASS)
        return scope->values[word];
    for (; scope != NULL; scope = scope->outer)
        if (scope->values[word] != NULL)
            return scope->values[word];
    return NULL;
}

bool nginx_guarded(const struct nginx_scope *scope) {
    while (scope != NULL && !scope->guards)
        scope = scope->outer;
    return scope != NULL && !scope->off;
}

enum nginx_access nginx_access(const struct nginx_scope *scope) {
    while (scope->outer != NULL && scope->access == ACCESS_UNSAID)
        scope = scope->outer;
    return scope->access;
}

/*
 * Finds the variables of nginx in a text, and follows them to the values that they are made of.
 * Variables may refer to themselves: the search ends after STEPS_MAX steps.
 */

#define NAME_MAX_LEN 100
#define STEPS_MAX 500

/* One search, with its number of steps. */
struct search {
    bool maps;
    bool (*is)(const char *name);
    unsigned steps;
};

static bool nginx_variable_find_in(const struct nginx_scope *scope, const char *text,
                                   struct search *search);

/* Searches the values of a variable in the nearest block that sets it. */
static bool nginx_variable_find_behind(const struct nginx_scope *scope, const char *name,
                                       struct search *search) {
    bool made = false;

    for (; scope != NULL && !made; scope = scope->outer)
        for (const struct nginx_set *set = scope->sets; set != NULL; set = set->next) {
            if (set->name[0] != '$' || strcasecmp(set->name + 1, name) != 0)
                continue;
            made = true;
            if ((search->maps || !set->map) && nginx_variable_find_in(scope, set->value, search))
                return true;
        }
    return false;
}

static bool nginx_variable_find_in(const struct nginx_scope *scope, const char *text,
                                   struct search *search) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    char name[NAME_MAX_LEN + 1];
    size_t len;

    if (search->steps++ > STEPS_MAX)
        return false;
    for (const char *at = strchr(text, '$'); at != NULL; at = strchr(at + len, '$')) {
        at += at[1] == '{' ? 2 : 1;
        len = strspn(at, letters);
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        if (len > 0 && (search->is(name) || nginx_variable_find_behind(scope, name, search)))
            return true;
    }
    return false;
}

bool nginx_names(const struct nginx_scope *scope, const char *text, bool maps,
                 bool (*is)(const char *name)) {
    return nginx_variable_find_in(scope, text, &(struct search){maps, is, 0});
}

bool nginx_name_fits(const char *name, const char *const *patterns) {
    for (; *patterns != NULL; patterns++)
        if (fnmatch(*patterns, name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}
