/*
 * Reads the settings file, an INI dialect in which nothing is guessed: an unknown or repeated
 * section or word, a value out of range and every syntax error is IDEM_E_INVALID with "FILE:LINE:
 * fault; allowed: ...". Also fails if the file cannot be read or is larger than
 * IDEM_SETTINGS_FILE_MAX, or if there is no memory. Settings are immutable once made.
 */
#include "core/settings.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text {
    const char *at;
    size_t len;
};

struct parser {
    const char *file;
    size_t line;
    struct idem_settings *settings;
    struct idem_layer *section; /* NULL before the first section */
    bool defaults_seen;
    uint64_t words_seen; /* in this section: a bit per option of the table */
    char value[IDEM_SETTINGS_LINE_MAX];
    struct idem_error *err;
};

#define SECTIONS "[defaults], [policy NAME]"

/* An IDEM_E_INVALID that begins with file and line. */
#define REFUSE(parser, fmt, ...)                                                                   \
    idem_error_set((parser)->err, IDEM_E_INVALID, "%s:%zu: " fmt, (parser)->file, (parser)->line,  \
                   ##__VA_ARGS__)

static struct text text_trim(struct text t) {
    idem_trim(&t.at, &t.len);
    return t;
}

/* Sections. */

static const char *text_name_fault(struct text name) {
    uint32_t c = 0;
    size_t n;

    if (name.len == 0)
        return "has no name";
    if (name.len > IDEM_SETTINGS_NAME_MAX)
        return "has too long a name";
    for (size_t pos = 0; pos < name.len; pos += n) {
        /* The line is known to be UTF-8. */
        n = idem_utf8_next(name.at + pos, name.len - pos, &c);
        if (n == 0 || idem_utf8_is_control(c) || c == '[' || c == ']' || c == '"')
            return "has a bracket, a quote or a control character in its name";
    }
    return NULL;
}

/* `name` is not terminated; NULL if there is no such policy. */
static const struct idem_layer *settings_find_policy(const struct idem_settings *settings,
                                                     struct text name) {
    for (size_t i = 0; i < settings->count; i++) {
        if (idem_is_word(name.at, name.len, settings->policies[i].policy.name))
            return &settings->policies[i];
    }
    return NULL;
}

static int parser_add_policy(struct parser *parser, struct text name) {
    struct idem_settings *settings = parser->settings;
    char buf[IDEM_SETTINGS_NAME_MAX + 1];
    struct idem_layer *grown;
    int rc;

    if (settings->count == IDEM_SETTINGS_POLICIES_MAX)
        return REFUSE(parser, "too many policies; allowed: %d", IDEM_SETTINGS_POLICIES_MAX);
    grown = realloc(settings->policies, (settings->count + 1) * sizeof(*grown));
    if (grown == NULL)
        return idem_error_set(parser->err, IDEM_E_NOMEM, "no memory for settings");
    settings->policies = grown;
    memcpy(buf, name.at, name.len);
    buf[name.len] = '\0';
    rc = idem_policy_copy(&(struct idem_policy){.name = buf}, &grown[settings->count], parser->err);
    if (rc < 0)
        return rc;
    parser->section = &grown[settings->count++];
    return 0;
}

static int parser_begin_policy(struct parser *parser, struct text name) {
    const char *fault = text_name_fault(name);
    char quoted[IDEM_QUOTE_TEXT];

    if (fault != NULL)
        return REFUSE(parser, "[policy NAME] %s; allowed: 1 to %d bytes", fault,
                      IDEM_SETTINGS_NAME_MAX);
    if (settings_find_policy(parser->settings, name) != NULL)
        return REFUSE(parser, "policy %s was there before; allowed: one section each",
                      idem_error_quote(name.at, name.len, quoted, sizeof(quoted)));
    return parser_add_policy(parser, name);
}

static int parser_begin_section(struct parser *parser, struct text line) {
    static const char policy[] = "policy";
    char quoted[IDEM_QUOTE_TEXT];
    struct text inner;

    if (line.at[line.len - 1] != ']')
        return REFUSE(parser, "the section has no ] at the end of its line; allowed: " SECTIONS);
    inner = text_trim((struct text){line.at + 1, line.len - 2});
    parser->words_seen = 0;
    if (idem_is_word(inner.at, inner.len, "defaults")) {
        if (parser->defaults_seen)
            return REFUSE(parser, "[defaults] was there before; allowed: once");
        parser->defaults_seen = true;
        parser->section = &parser->settings->defaults;
        return 0;
    }
    if (idem_begins(inner.at, inner.len, policy) &&
        (inner.len == sizeof(policy) - 1 || idem_is_blank(inner.at[sizeof(policy) - 1]))) {
        inner.at += sizeof(policy) - 1;
        inner.len -= sizeof(policy) - 1;
        return parser_begin_policy(parser, text_trim(inner));
    }
    return REFUSE(parser, "%s is no section; allowed: " SECTIONS,
                  idem_error_quote(line.at, line.len, quoted, sizeof(quoted)));
}

/* Words and values. */

/* Removes the quotes. The result is in the parser's buffer, which is as long as a line may be. */
static int parser_unquote_value(struct parser *parser, struct text *value) {
    size_t n = 0, pos;

    for (pos = 1; pos < value->len && value->at[pos] != '"'; pos++) {
        if (value->at[pos] == '\\') {
            pos++;
            if (pos == value->len || (value->at[pos] != '"' && value->at[pos] != '\\'))
                return REFUSE(parser, "a backslash stands before something else; allowed between "
                                      "quotes: \\\" and \\\\");
        }
        parser->value[n++] = value->at[pos];
    }
    if (pos == value->len)
        return REFUSE(parser, "the value has no closing quote");
    if (pos + 1 < value->len)
        return REFUSE(parser, "something follows the closing quote; allowed: a comment on a line "
                              "of its own, \\\" for a quote");
    *value = (struct text){parser->value, n};
    return 0;
}

static int parser_read_value(struct parser *parser, struct text *value) {
    if (value->len == 0)
        return REFUSE(parser, "there is no value after the =");
    if (value->at[0] == '"')
        return parser_unquote_value(parser, value);
    /* Such a character could belong to the value or begin a comment: the file must be
       unambiguous. */
    for (size_t i = 0; i < value->len; i++) {
        if (strchr("#;\"", value->at[i]) != NULL)
            return REFUSE(parser, "a value with #, ; or a quote in it must stand between double "
                                  "quotes; comments stand on lines of their own");
    }
    return 0;
}

/* Refuses a word that is repeated or not allowed in this section; idem_policy_set() refuses
   unknown words. */
static int parser_check_word(struct parser *parser, struct text word) {
    const struct idem_option *option = idem_option_find(word.at, word.len);
    uint64_t bit;

    if (option == NULL)
        return 0;
    if (parser->section == &parser->settings->defaults &&
        option->offset == offsetof(struct idem_policy, prefix))
        return REFUSE(parser, "prefix cannot stand in [defaults]: every policy would share it, and "
                              "two operations could meet under one key; allowed: in [policy NAME]");
    bit = UINT64_C(1) << (option - idem_option_table);
    if ((parser->words_seen & bit) != 0)
        return REFUSE(parser, "%s is set twice in this section; allowed: once", option->word);
    parser->words_seen |= bit;
    return 0;
}

static int parser_set_word(struct parser *parser, struct text line) {
    const char *equals = memchr(line.at, '=', line.len);
    struct text word, value;
    struct idem_error why;
    int rc;

    if (equals == NULL)
        return REFUSE(parser, "there is no = in this line; allowed: WORD = VALUE, [SECTION], "
                              "# comment");
    word = text_trim((struct text){line.at, (size_t)(equals - line.at)});
    value = text_trim((struct text){equals + 1, line.len - (size_t)(equals - line.at) - 1});
    if (parser->section == NULL)
        return REFUSE(parser, "a word stands before the first section; allowed: " SECTIONS);
    rc = parser_check_word(parser, word);
    if (rc == 0)
        rc = parser_read_value(parser, &value);
    if (rc < 0)
        return rc;
    rc = idem_policy_set(parser->section, word.at, word.len, value.at, value.len, &why);
    if (rc == IDEM_E_INVALID)
        return REFUSE(parser, "%s", why.text);
    return rc < 0 ? idem_error_copy(parser->err, &why) : 0;
}

/* Lines. */

static int parser_read_line(struct parser *parser, struct text line) {
    if (line.len > 0 && line.at[line.len - 1] == '\r')
        line.len--;
    if (line.len > IDEM_SETTINGS_LINE_MAX)
        return REFUSE(parser, "the line is too long; allowed: %d bytes", IDEM_SETTINGS_LINE_MAX);
    if (line.len > 0 && memchr(line.at, '\0', line.len) != NULL)
        return REFUSE(parser, "there is a NUL byte; allowed: UTF-8 text");
    if (!idem_utf8_valid(line.at, line.len))
        return REFUSE(parser, "this is not UTF-8; allowed: UTF-8 text");
    line = text_trim(line);
    if (line.len == 0 || line.at[0] == '#' || line.at[0] == ';')
        return 0;
    return line.at[0] == '[' ? parser_begin_section(parser, line) : parser_set_word(parser, line);
}

static int parser_read_lines(struct parser *parser, struct text rest) {
    const char *end;
    size_t len;
    int rc;

    /* Editors that end lines in CRLF also begin files with a byte order mark. */
    if (idem_begins(rest.at, rest.len, "\xef\xbb\xbf"))
        rest = (struct text){rest.at + 3, rest.len - 3};
    while (rest.len > 0) {
        end = memchr(rest.at, '\n', rest.len);
        len = end == NULL ? rest.len : (size_t)(end - rest.at);
        parser->line++;
        rc = parser_read_line(parser, (struct text){rest.at, len});
        if (rc < 0)
            return rc;
        if (end == NULL)
            break;
        rest = (struct text){end + 1, rest.len - len - 1};
    }
    return 0;
}

int idem_settings_parse(const char *name, const char *text, size_t len, struct idem_settings **ret,
                        struct idem_error *err) {
    const char *file = name == NULL ? "settings" : name;
    struct idem_settings *settings;
    struct parser *parser;
    int rc = idem_need(ret, err);

    if (rc == 0 && len != 0)
        rc = idem_need(text, err);
    if (rc != 0)
        return rc;
    if (len > IDEM_SETTINGS_FILE_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "%s: too large; allowed: 1MiB", file);
    settings = calloc(1, sizeof(*settings));
    parser = calloc(1, sizeof(*parser));
    if (settings == NULL || parser == NULL) {
        free(parser);
        free(settings);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for settings");
    }
    parser->file = file;
    parser->settings = settings;
    parser->err = err;
    rc = parser_read_lines(parser, (struct text){text, len});
    free(parser);
    if (rc < 0) {
        idem_settings_free(settings);
        return rc;
    }
    *ret = settings;
    return 0;
}

/* Files. */

/* Reads to the end, or one byte more than is allowed. False with errno on failure. */
static bool settings_read_file(int fd, char *buf, size_t size, size_t *ret_len) {
    size_t len = 0;
    ssize_t n;

    while (len < size) {
        n = read(fd, buf + len, size - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    *ret_len = len;
    return true;
}

int idem_settings_load(const char *path, struct idem_settings **ret, struct idem_error *err) {
    char *buf = NULL;
    size_t len = 0;
    int rc = idem_need(path, err) ?: idem_need(ret, err), fd;

    if (rc != 0)
        return rc;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return idem_error_set(err, IDEM_E_INVALID, "%s: cannot be opened: %m", path);
    buf = malloc(IDEM_SETTINGS_FILE_MAX + 1);
    if (buf == NULL)
        rc = idem_error_set(err, IDEM_E_NOMEM, "no memory for settings");
    else if (!settings_read_file(fd, buf, IDEM_SETTINGS_FILE_MAX + 1, &len))
        rc = idem_error_set(err, IDEM_E_INVALID, "%s: cannot be read: %m", path);
    else
        rc = idem_settings_parse(path, buf, len, ret, err);
    free(buf);
    close(fd);
    return rc;
}

void idem_settings_free(struct idem_settings *settings) {
    if (settings == NULL)
        return;
    idem_policy_release(&settings->defaults);
    for (size_t i = 0; i < settings->count; i++)
        idem_policy_release(&settings->policies[i]);
    free(settings->policies);
    free(settings);
}

int idem_settings_copy(const struct idem_settings *settings, struct idem_settings **ret,
                       struct idem_error *err) {
    struct idem_settings *copy;
    int rc;

    if (settings == NULL) {
        *ret = NULL;
        return 0;
    }
    copy = calloc(1, sizeof(*copy));
    if (copy != NULL)
        copy->policies = calloc(settings->count + 1, sizeof(*copy->policies));
    if (copy == NULL || copy->policies == NULL) {
        free(copy);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for settings");
    }
    copy->count = settings->count;
    rc = idem_policy_copy(&settings->defaults.policy, &copy->defaults, err);
    for (size_t i = 0; i < settings->count && rc == 0; i++)
        rc = idem_policy_copy(&settings->policies[i].policy, &copy->policies[i], err);
    if (rc < 0) {
        idem_settings_free(copy);
        return rc;
    }
    *ret = copy;
    return 0;
}

/* Lookups. */

const struct idem_policy *idem_settings_find(const struct idem_settings *settings,
                                             const char *name) {
    const struct idem_layer *layer;

    if (settings == NULL || name == NULL)
        return NULL;
    layer = settings_find_policy(settings, (struct text){name, strlen(name)});
    return layer == NULL ? NULL : &layer->policy;
}

const struct idem_policy *idem_settings_defaults(const struct idem_settings *settings) {
    return settings == NULL ? NULL : &settings->defaults.policy;
}
