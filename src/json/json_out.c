/*
 * Writes JSON to a stream. The stream keeps its errors; this file adds none.
 */
#include "json/json_out.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "base/visible.h"

#define CHARACTER JSON_OUT_CHARACTER

size_t json_out_escape_character(const char *bytes, size_t len, char ret[CHARACTER]) {
    uint32_t c = 0;
    size_t n = idem_utf8_next(bytes, len, &c);

    if (n == 0)
        snprintf(ret, CHARACTER, "\\ufffd");
    else if (c == '"' || c == '\\')
        snprintf(ret, CHARACTER, "\\%c", (int)c);
    else if (c == '\n')
        snprintf(ret, CHARACTER, "\\n");
    else if (!idem_visible(c)) /* mostly legal in JSON, but not safe on a terminal */
        idem_visible_json(c, ret);
    else
        *(char *)mempcpy(ret, bytes, n) = '\0';
    return n == 0 ? 1 : n;
}

static void json_out_write_string(FILE *out, const char *bytes, size_t len, size_t max) {
    size_t written = 0, n;
    char next[CHARACTER];

    fputc('"', out);
    for (size_t at = 0; at < len; at += n) {
        n = json_out_escape_character(bytes + at, len - at, next);
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
    json_out_write_string(out, bytes, len, SIZE_MAX);
}

static void json_out_begin_member(struct json_out *json, const char *name) {
    if (json->more)
        fputc(',', json->out);
    json->more = true;
    if (name == NULL)
        return;
    json_out_string(json->out, name, strlen(name));
    fputc(':', json->out);
}

void json_out_open(struct json_out *json, const char *name) {
    json_out_begin_member(json, name);
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
    json_out_begin_member(json, name);
    json_out_write_string(json->out, text, strlen(text), max);
}

void json_out_int(struct json_out *json, const char *name, int64_t value) {
    json_out_begin_member(json, name);
    fprintf(json->out, "%" PRId64, value);
}

void json_out_uint(struct json_out *json, const char *name, uint64_t value) {
    json_out_begin_member(json, name);
    fprintf(json->out, "%" PRIu64, value);
}

void json_out_bool(struct json_out *json, const char *name, bool value) {
    json_out_begin_member(json, name);
    fputs(value ? "true" : "false", json->out);
}

void json_out_null(struct json_out *json, const char *name) {
    json_out_begin_member(json, name);
    fputs("null", json->out);
}

void json_out_list(struct json_out *json, const char *name) {
    json_out_begin_member(json, name);
    fputc('[', json->out);
    json->more = false;
}

void json_out_list_end(struct json_out *json) {
    fputc(']', json->out);
    json->more = true;
}
