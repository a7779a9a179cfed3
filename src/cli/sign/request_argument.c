/*
 * Reads a request from a command line. Anything that curl would change before sending is refused:
 * the signature would cover a request that is never sent.
 */
#include "cli/sign/request_argument.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/units.h"
#include "base/url.h"
#include "base/visible.h"
#include "cli/input.h"
#include "cli/time_argument.h"
#include "sign/sign.h"

/* Reads a whole file; "-" is standard input. */
static int request_argument_file_read(const char *command, const char *name, char **ret,
                                      size_t *ret_len) {
    bool standard = strcmp(name, "-") == 0;
    FILE *in = standard ? stdin : fopen(name, "re");
    int status;

    if (in == NULL) {
        cli_message("%s: %s: %s", command, name, strerror(errno));
        return errno == ENOENT ? CLI_ABSENT : CLI_IO;
    }
    status = cli_input_all(in, standard ? "standard input" : name, ret, ret_len);
    if (!standard)
        fclose(in);
    return status;
}

/* Headers. */

/* Adds "Name: value", or "Name;" for an empty value, as curl does. Cuts the line in place. */
static int request_argument_header_add(const char *command, char *line, struct cli_request *ret) {
    size_t name = strcspn(line, ":;"), len;
    char *value;

    if (line[name] == '\0' || (line[name] == ';' && line[name + 1] != '\0'))
        return cli_usage(command, "-H: a header is written 'Name: value'");
    if (ret->request.fields_n == CLI_FIELDS_MAX)
        return cli_usage(command, "-H: there are more than 64 headers");
    value = line + name + 1;
    line[name] = '\0';
    value += strspn(value, " \t");
    len = strlen(value);
    while (len > 0 && strchr(" \t", value[len - 1]) != NULL)
        value[--len] = '\0';
    ret->fields[ret->request.fields_n++] = (struct idem_field){line, value};
    if (strcasecmp(line, "Host") == 0)
        ret->request.authority = value;
    return CLI_OK;
}

static int request_argument_lines_add(const char *command, char *text, struct cli_request *ret) {
    int status = CLI_OK;

    for (char *at = text, *next; status == CLI_OK && *at != '\0'; at = next) {
        size_t len = strcspn(at, "\n");

        next = at + len + (at[len] == '\n');
        at[len] = '\0';
        if (len > 0 && at[len - 1] == '\r')
            at[len - 1] = '\0';
        if (*at != '\0')
            status = request_argument_header_add(command, at, ret);
    }
    return status;
}

static int request_argument_headers_read(const struct cli_values *values, const char *command,
                                         struct cli_request *ret) {
    int status = CLI_OK;

    ret->request.fields = ret->fields;
    for (size_t i = 0; status == CLI_OK && i < values->headers.n; i++) {
        const char *given = values->headers.at[i];
        size_t len;

        if (given[0] != '@') {
            ret->held[i] = strdup(given);
            status = ret->held[i] != NULL ? request_argument_header_add(command, ret->held[i], ret)
                                          : cli_fail(CLI_SYSTEM, "no memory");
            continue;
        }
        status = request_argument_file_read(command, given + 1, &ret->held[i], &len);
        if (status == CLI_OK)
            status = strlen(ret->held[i]) == len
                         ? request_argument_lines_add(command, ret->held[i], ret)
                         : cli_usage(command, "-H: a header has a NUL in it");
    }
    return status;
}

/* The body. */

static int request_argument_body_read(const struct cli_values *values, const char *command,
                                      struct cli_request *ret) {
    const char *given = values->data.n > 0 ? values->data.at[0] : NULL, *file = values->data_file;
    int status;

    if (values->data.n > 1 || (given != NULL && file != NULL))
        return cli_usage(command, "there is one body: one of -d and --data-file, once");
    if (given != NULL && given[0] == '@')
        file = given + 1;
    for (size_t i = 0; i < values->headers.n; i++)
        if (file != NULL && strcmp(file, "-") == 0 && strcmp(values->headers.at[i], "@-") == 0)
            return cli_usage(command, "standard input is either the body or the headers");
    ret->request.method = given != NULL || file != NULL ? "POST" : "GET";
    if (values->method != NULL)
        ret->request.method = values->method;
    if (file == NULL) {
        ret->request.body = given;
        ret->request.body_len = given != NULL ? strlen(given) : 0;
        return CLI_OK;
    }
    status = request_argument_file_read(command, file, &ret->body, &ret->request.body_len);
    ret->request.body = ret->body;
    return status;
}

/* The URL. */

/* True if a segment of the path is . or .., also when percent-encoded: curl removes these. */
static bool request_argument_has_dots(const char *path) {
    size_t dots;

    for (const char *at = path; *at != '\0' && *at != '?'; at += *at == '/') {
        for (dots = 0;; dots++) {
            if (*at == '.')
                at++;
            else if (strncasecmp(at, "%2e", 3) == 0)
                at += 3;
            else
                break;
        }
        if ((dots == 1 || dots == 2) && strchr("/?", *at) != NULL)
            return true;
        at += strcspn(at, "/?");
    }
    return false;
}

/* Removes user and password, and the scheme's default port. */
static char *request_argument_authority_cut(char *authority, const char *port) {
    char *at = strrchr(authority, '@');
    size_t len, port_len = strlen(port);

    if (at != NULL)
        authority = at + 1;
    len = strlen(authority);
    if (len > port_len && strcmp(authority + len - port_len, port) == 0)
        authority[len - port_len] = '\0';
    return authority;
}

static int request_argument_url_read(const char *url, const char *command,
                                     struct cli_request *ret) {
    bool secure;
    const char *behind = idem_url_http(url, &secure);
    char *rest;
    size_t len;

    if (behind == NULL)
        return cli_usage(command, "the URL must begin with http:// or https://");
    ret->url = strndup(behind, strcspn(behind, "#"));
    if (ret->url == NULL)
        return cli_fail(CLI_SYSTEM, "no memory");
    len = strcspn(ret->url, "/?");
    rest = ret->url + len;
    if (asprintf(&ret->target, "%s%s", *rest == '/' ? "" : "/", rest) < 0) {
        ret->target = NULL;
        return cli_fail(CLI_SYSTEM, "no memory");
    }
    *rest = '\0';
    ret->request.scheme = secure ? "https" : "http";
    ret->request.target = ret->target;
    ret->request.authority = request_argument_authority_cut(ret->url, secure ? ":443" : ":80");
    if (ret->request.authority[0] == '\0')
        return cli_usage(command, "the URL names no host");
    if (request_argument_has_dots(ret->target))
        return cli_usage(command, "the URL's path has a part . or .., which is not sent as it is "
                                  "written: write the path without it");
    return CLI_OK;
}

int cli_request_read(const struct cli_values *values, const char *command,
                     struct cli_request *ret) {
    int status;

    *ret = (struct cli_request){0};
    if (values->operands_n != 1)
        return cli_usage(command, values->operands_n == 0 ? "the URL is missing"
                                                          : "takes one URL, and no more operands");
    status = request_argument_url_read(values->operands[0], command, ret);
    if (status == CLI_OK)
        status = request_argument_headers_read(values, command, ret);
    return status == CLI_OK ? request_argument_body_read(values, command, ret) : status;
}

void cli_request_release(struct cli_request *request) {
    for (size_t i = 0; i < CLI_LIST_MAX; i++)
        free(request->held[i]);
    free(request->url);
    free(request->target);
    free(request->body);
}

/* The signer. */

static int request_argument_word_read(const char *command, const char *flag, const char *text,
                                      const struct idem_word *words, int *ret) {
    char allowed[128];

    if (text == NULL || idem_word_find(words, text, strlen(text), ret))
        return CLI_OK;
    return cli_usage(command, "--%s: allowed: %s", flag,
                     idem_words_list(words, allowed, sizeof(allowed)));
}

int cli_request_signer(const struct cli_values *values, const char *command,
                       struct idem_signer **ret) {
    struct idem_sign_rules rules = {.secret_file = values->secret_file,
                                    .window_ms = values->window_ms,
                                    .headers = values->sign_headers};
    int form = 0, sequence = 0, status;
    struct idem_error err;

    if (rules.secret_file == NULL)
        return cli_usage(command, "--secret-file FILE is missing: a key to a line, ID hmac-sha256 "
                                  "base64:SECRET");
    status = request_argument_word_read(command, "form", values->form, idem_words_sign_form, &form);
    if (status == CLI_OK)
        status = request_argument_word_read(command, "sequence", values->sequence,
                                            idem_words_sequence, &sequence);
    if (status != CLI_OK)
        return status;
    rules.form = (enum idem_sign_form)form;
    rules.sequence = (enum idem_sequence)sequence;
    if (idem_signer_new(&rules, ret, &err) < 0)
        return cli_message_error(command, &err);
    return CLI_OK;
}

int cli_request_time(const char *text, const char *command, const char *flag, int64_t *ret_ms) {
    struct idem_error err;
    int64_t count;

    if (strspn(text, "0123456789") == strlen(text)) {
        if (idem_count_parse(text, strlen(text), &count, &err) == 0 && count > 0 &&
            count <= INT64_MAX / 1000) {
            *ret_ms = count * 1000;
            return CLI_OK;
        }
    } else if (time_argument_parse(text, idem_sign_now(), ret_ms, &err) == 0 && *ret_ms > 0) {
        return CLI_OK;
    }
    return cli_usage(
        command, "--%s: allowed are seconds since 1970, 2026-11-15T20:00:00Z, and 5m, which is ago",
        flag);
}

void cli_lines_print(const char *text, FILE *out) {
    size_t len = strlen(text), n;
    bool begins = true;
    uint32_t c = 0;

    for (size_t at = 0; at < len; at += n) {
        if (begins)
            fputs("  ", out);
        begins = text[at] == '\n';
        n = idem_utf8_next(text + at, len - at, &c);
        if (begins || (n > 0 && idem_visible(c))) {
            fwrite(text + at, 1, n, out);
            continue;
        }
        n = n == 0 ? 1 : n;
        for (size_t i = 0; i < n; i++)
            fprintf(out, "\\x%02x", (unsigned)(unsigned char)text[at + i]);
    }
    if (!begins)
        fputc('\n', out);
}
