/*
 * Writes JSON to a stream. It keeps no errors of its own: the stream has them.
 */
#include "json/out.h"

#include <inttypes.h>
#include <string.h>

#include "core/units.h"

#define CHARACTER 12 /* the longest as it is written, with a NUL */

/* The next character as it is written; how many bytes of the text it was. */
static size_t character(const char *bytes, size_t len, char ret[CHARACTER]) {
    uint32_t c = 0;
    size_t n = idem_utf8_next(bytes, len, &c);

    if (n == 0)
        snprintf(ret, CHARACTER, "\\ufffd");
    else if (c == '"' || c == '\\')
        snprintf(ret, CHARACTER, "\\%c", (int)c);
    else if (c == '\n')
        snprintf(ret, CHARACTER, "\\n");
    else if (idem_utf8_is_control(c) || c == 0x2028 || c == 0x2029)
        /* C1 and the two separators are legal in JSON, but not in every terminal or script. */
        snprintf(ret, CHARACTER, "\\u%04" PRIx32, c);
    else
        *(char *)mempcpy(ret, bytes, n) = '\0';
    return n == 0 ? 1 : n;
}

static void string_write(FILE *out, const char *bytes, size_t len, size_t max) {
    size_t written = 0, n;
    char next[CHARACTER];

    fputc('"', out);
    for (size_t at = 0; at < len; at += n) {
        n = character(bytes + at, len - at, next);
        written += strlen(next);
        if (written > max) {
            fputs("...", out);
            break;
        }
        fputs(next, out);
    }
    fputc('"', out);
}

void json_out_string(FILE *out, const char *bytes, size_t len) {
    string_write(out, bytes, len, SIZE_MAX);
}

static void member(struct json_out *json, const char *name) {
    if (json->more)
        fputc(',', json->out);
    json->more = true;
    if (name == NULL)
        return;
    json_out_string(json->out, name, strlen(name));
    fputc(':', json->out);
}

void json_out_open(struct json_out *json, const char *name) {
    member(json, name);
    fputc('{', json->out);
    json->more = false;
}

void json_out_close(struct json_out *json) {
    fputc('}', json->out);
    json->more = true;
}

void json_out_line(struct json_out *json) {
    fputs("}\n", json->out);
    json->more = false;
}

void json_out_text(struct json_out *json, const char *name, const char *text) {
    json_out_cut(json, name, text, SIZE_MAX);
}

void json_out_cut(struct json_out *json, const char *name, const char *text, size_t max) {
    member(json, name);
    string_write(json->out, text, strlen(text), max);
}

void json_out_int(struct json_out *json, const char *name, int64_t value) {
    member(json, name);
    fprintf(json->out, "%" PRId64, value);
}

void json_out_uint(struct json_out *json, const char *name, uint64_t value) {
    member(json, name);
    fprintf(json->out, "%" PRIu64, value);
}

void json_out_bool(struct json_out *json, const char *name, bool value) {
    member(json, name);
    fputs(value ? "true" : "false", json->out);
}

void json_out_null(struct json_out *json, const char *name) {
    member(json, name);
    fputs("null", json->out);
}

void json_out_list(struct json_out *json, const char *name) {
    member(json, name);
    fputc('[', json->out);
    json->more = false;
}

void json_out_list_end(struct json_out *json) {
    fputc(']', json->out);
    json->more = true;
}
