/*
 * Messages to an HTTP endpoint. libcurl makes the connections and keeps them; the loop watches
 * its sockets and its timer.
 *
 * The result depends on whether any byte of the request was sent. libcurl makes the connection
 * first, and calls to_on_request before it sends. A failure before that call means that nothing
 * was begun. After it, anything but a whole response leaves the outcome unknown. libcurl calls
 * to_on_request again when it wants to repeat the request on a new connection, because the old
 * one was closed without a byte of response. The endpoint may have done the work even so, so
 * the repetition is refused.
 */
#include "queue/handler/handler_to.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/chars.h"
#include "base/error.h"
#include "protocol/record_key.h"
#include "queue/handler/handler_answer.h"
#include "json/json.h"

/*
 * The header of a request to an endpoint: Idem's own fields, and the message's headers. No
 * header of a message may pass that the endpoint would take for Idem's, for the connection's,
 * or for credentials: the right to publish to a queue gives no other identity. Fails only
 * without memory.
 */

/* Fields of the connection, of this request, or of its response, which libcurl must read; the
   last ones are for the operator to set, in the URL. */
static const char *const never[] = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
    "http2-settings",
    "content-type",
    "content-encoding",
    "cookie",
    "cookie2",
    "set-cookie",
    "authorization",
    NULL,
};
static const char *const never_begin[] = {"idem-", "idempoten", "proxy-", NULL};

struct request {
    struct curl_slist *list;
    bool failed;
};

static void request_add_line(struct request *request, const char *line) {
    struct curl_slist *list = request->failed ? NULL : curl_slist_append(request->list, line);

    if (list == NULL)
        request->failed = true;
    else
        request->list = list;
}

/* Values are checked before. An empty value needs the form `Name;`, since `Name:` removes the
   field. */
static void request_add_field(struct request *request, struct idem_http_text name,
                              struct idem_http_text value) {
    char *line;

    if (asprintf(&line, "%.*s%s%.*s", (int)name.len, name.at, value.len == 0 ? ";" : ": ",
                 (int)value.len, value.at) < 0) {
        request->failed = true;
        return;
    }
    request_add_line(request, line);
    free(line);
}

static struct idem_http_text bytes_text(struct idem_bytes bytes) {
    return (struct idem_http_text){(const char *)bytes.at, bytes.len};
}

static bool to_request_value_is_valid(struct idem_http_text value) {
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool to_request_field_may_pass(struct idem_http_text name) {
    if (!idem_http_is_token(name))
        return false;
    for (size_t i = 0; never[i] != NULL; i++)
        if (idem_http_same(name, idem_http_text_of(never[i])))
            return false;
    for (size_t i = 0; never_begin[i] != NULL; i++) {
        struct idem_http_text begin = idem_http_text_of(never_begin[i]);

        if (name.len >= begin.len &&
            idem_http_same((struct idem_http_text){name.at, begin.len}, begin))
            return false;
    }
    return true;
}

/* Adds the message's own headers while there is room; returns the number of the others. */
static size_t request_add_originals(struct request *request, const struct queue_message *message) {
    size_t n = 0, len = 0, omitted = 0;

    for (size_t i = 0; i < message->headers_n; i++) {
        const struct queue_field *field = &message->headers[i];
        struct idem_http_text name = bytes_text(field->name);
        struct idem_http_text value = idem_http_trim(bytes_text(field->value));

        if (field->json || !to_request_field_may_pass(name) || !to_request_value_is_valid(value))
            continue;
        if (n == TO_ORIGINALS_MAX || name.len + value.len > TO_ORIGINALS_LEN - len) {
            omitted++;
            continue;
        }
        request_add_field(request, name, value);
        n++;
        len += name.len + value.len;
    }
    return omitted;
}

/* A fact about the body: the broker's property, else the header of that name. */
static bool request_add_property(struct request *request, const struct queue_message *message,
                                 const char *property, const char *name) {
    const struct queue_field *field = queue_message_property(message, property);
    struct idem_http_text value;

    if (field == NULL)
        field = queue_message_header(message, name);
    if (field == NULL || field->json)
        return false;
    value = idem_http_trim(bytes_text(field->value));
    if (value.len == 0 || value.len > 1024 || !to_request_value_is_valid(value))
        return false;
    request_add_field(request, idem_http_text_of(name), value);
    return true;
}

/* A string of structured fields (RFC 9651): the key if it fits, else its hash. */
static void request_add_key(struct request *request, const struct queue_run *run) {
    char line[2 * IDEM_HTTP_KEY_MAX + 32];
    const char *key = run->key;
    size_t len = run->key_len, n;
    bool fits = len > 0 && len <= IDEM_HTTP_KEY_MAX;

    for (size_t i = 0; fits && i < len; i++)
        fits = idem_is_print(key[i]);
    if (!fits) {
        key = run->hash;
        len = strlen(run->hash);
    }
    n = (size_t)snprintf(line, sizeof(line), "Idempotency-Key: \"");
    for (size_t i = 0; i < len && n < sizeof(line) - 3; i++) {
        if (key[i] == '"' || key[i] == '\\')
            line[n++] = '\\';
        line[n++] = key[i];
    }
    line[n++] = '"';
    line[n] = '\0';
    request_add_line(request, line);
}

static void request_add_own(struct request *request, const struct queue_run *run,
                            const char *prefix) {
    char downstream[IDEM_HEX_LEN + 1], line[128];

    request_add_key(request, run);
    snprintf(line, sizeof(line), "Idem-Attempt: %" PRIu32, run->attempt);
    request_add_line(request, line);
    if (idem_downstream_key(prefix, run->hash, downstream) < 0) {
        request->failed = true;
        return;
    }
    snprintf(line, sizeof(line), "Idem-Downstream-Key: %s", downstream);
    request_add_line(request, line);
}

/* The header of the request. The caller frees it by curl_slist_free_all(). NULL without memory. */
static struct curl_slist *handler_to_request_headers(const struct queue_run *run,
                                                     const char *prefix) {
    struct request request = {0};
    size_t omitted;
    char line[64];

    request_add_own(&request, run, prefix);
    request_add_line(&request, "Expect:");
    /* Without this line, libcurl would declare a form. */
    if (!request_add_property(&request, run->message, "content_type", "Content-Type"))
        request_add_line(&request, "Content-Type:");
    (void)request_add_property(&request, run->message, "content_encoding", "Content-Encoding");
    omitted = request_add_originals(&request, run->message);
    if (omitted > 0) {
        snprintf(line, sizeof(line), "Idem-Omitted: %zu", omitted);
        request_add_line(&request, line);
    }
    if (!request.failed)
        return request.list;
    curl_slist_free_all(request.list);
    return NULL;
}

/*
 * The parts of an endpoint's response that matter: the delay of a retry (Retry-After), the
 * outcome (Idem-Outcome), and a message for people. Nothing here fails: unknown parts are
 * ignored.
 */

static void to_answer_copy_text(struct idem_http_text value, char *buf, size_t size) {
    if (value.len >= size)
        value.len = 0; /* no known value is that long */
    if (value.len > 0)
        memcpy(buf, value.at, value.len);
    buf[value.len] = '\0';
}

void to_answer_line(struct to_answer *answer, const char *line, size_t len) {
    const char *colon = memchr(line, ':', len);
    struct idem_http_text name, value;

    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        *answer = (struct to_answer){.head_len = answer->head_len};
        return;
    }
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == '\n'))
        len--;
    answer->whole_head |= len == 0;
    if (colon == NULL)
        return;
    name = (struct idem_http_text){line, (size_t)(colon - line)};
    value = idem_http_trim((struct idem_http_text){colon + 1, len - name.len - 1});
    if (idem_http_same(name, IDEM_HTTP_TEXT("Retry-After")))
        to_answer_copy_text(value, answer->retry_after, sizeof(answer->retry_after));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Date")))
        to_answer_copy_text(value, answer->date, sizeof(answer->date));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Content-Type")))
        to_answer_copy_text(value, answer->type, sizeof(answer->type));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Outcome")))
        answer->has_outcome |= idem_http_outcome_read(value, &answer->outcome);
}

void to_answer_body(struct to_answer *answer, const char *bytes, size_t len) {
    size_t room = TO_KEPT_MAX - answer->body_len;

    if (len > room)
        len = room;
    if (len > 0)
        memcpy(answer->body + answer->body_len, bytes, len);
    answer->body_len += len;
}

int64_t to_answer_delay_ms(const struct to_answer *answer) {
    int64_t now = time(NULL), seconds = 0;

    /* By the endpoint's clock if it sends one (Date): ours may differ. */
    (void)idem_http_date(idem_http_text_of(answer->date), now, &now);
    (void)idem_http_retry_after(idem_http_text_of(answer->retry_after), now,
                                HANDLER_DELAY_MAX_MS / 1000, &seconds);
    return 1000 * seconds;
}

/* The text of a problem (RFC 9457). False: there is none, or the body was longer than the kept
   part. */
static bool to_answer_problem_text(const struct to_answer *answer, char *buf, size_t size) {
    const struct idem_json *words;
    struct idem_arena arena;
    struct idem_json problem;
    bool found = false;

    idem_arena_init(&arena, (size_t)64 * TO_KEPT_MAX);
    if (idem_json_parse(answer->body, answer->body_len, &arena, &problem, NULL) == 0 &&
        problem.type == IDEM_JSON_OBJECT) {
        words = idem_json_get(&problem, "detail", strlen("detail"));
        if (words == NULL || words->type != IDEM_JSON_STRING)
            words = idem_json_get(&problem, "title", strlen("title"));
        if (words != NULL && words->type == IDEM_JSON_STRING) {
            handler_words(words->at.text, words->n, buf, size);
            found = true;
        }
    }
    idem_arena_free(&arena);
    return found;
}

/* The first line of a text. */
static void to_answer_first_line(const struct to_answer *answer, char *buf, size_t size) {
    const char *end = memchr(answer->body, '\n', answer->body_len);

    handler_words(answer->body, end == NULL ? answer->body_len : (size_t)(end - answer->body), buf,
                  size);
}

const char *to_answer_reason(const struct to_answer *answer, long status, char *buf, size_t size) {
    char words[256] = "";

    if (idem_http_type_read(idem_http_text_of(answer->type)) == IDEM_HTTP_JSON)
        (void)to_answer_problem_text(answer, words, sizeof(words));
    else if (idem_text_begins(answer->type, "text/plain"))
        to_answer_first_line(answer, words, sizeof(words));
    snprintf(buf, size, "HTTP %ld%s%s", status, words[0] == '\0' ? "" : ": ", words);
    return buf;
}

/* Endpoints close idle connections. A connection that is idle for longer than this is not used
   again, so that a request does not meet the close on its way. */
#define IDLE_S 1L

/* libcurl has its own timeout, but loses a transfer when it has no memory to watch its socket.
   The transfer is given up this long after it should have ended. */
#define LATE_MS 200

#define REASON_MAX 400

struct transfer {
    struct to *to;
    CURL *easy; /* made at the first use, and kept */
    struct curl_slist *headers;
    struct queue_run *run;
    struct idem_task report_task;
    struct idem_timer limit;
    struct transfer *next; /* in the list of free transfers */
    bool sent;             /* libcurl has begun to send the request */
    bool late;             /* the lease was over before that */
    bool again;            /* libcurl wanted to send it a second time */
    bool flying;           /* libcurl owns it */
    struct to_answer answer;
    struct queue_outcome outcome;
    char error[CURL_ERROR_SIZE];
    char reason[REASON_MAX];
};

struct to {
    struct idem_loop *loop;
    struct idem_epoll_set epoll_set;
    struct idem_timer timer;
    CURLM *multi;
    char *url, *prefix, *ca_file;
    long timeout_ms;
    struct handler_rules on_status;
    struct transfer *free;
    unsigned workers;
    struct transfer transfers[];
};

/* A socket of libcurl. */
struct to_socket {
    struct to *to;
    struct idem_fd fd;
};

/* The last access to a transfer: the callback may begin the next run with it. */
static void transfer_report(struct transfer *t) {
    struct queue_run *run = t->run;
    struct queue_outcome outcome = t->outcome;
    char reason[REASON_MAX];

    memcpy(reason, t->reason, sizeof(reason));
    outcome.reason = outcome.result == QUEUE_DONE ? NULL : reason;
    idem_timer_clear(t->to->loop, &t->limit);
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    t->run = NULL;
    t->next = t->to->free;
    t->to->free = t;
    run->finished(run, &outcome);
}

static void to_transfer_task(struct idem_task *task) {
    transfer_report(idem_container_of(task, struct transfer, report_task));
}

/* Results. */

static enum queue_result to_outcome_result(enum idem_http_outcome outcome) {
    static const enum queue_result results[] = {
        [IDEM_HTTP_DONE] = QUEUE_DONE,
        [IDEM_HTTP_RELEASE] = QUEUE_RETRY,
        [IDEM_HTTP_KEEP] = QUEUE_REFUSED,
        [IDEM_HTTP_UNKNOWN] = QUEUE_UNKNOWN,
    };

    return results[outcome];
}

static void transfer_judge_response(struct transfer *t, long status) {
    enum queue_result result = t->answer.has_outcome ? to_outcome_result(t->answer.outcome)
                                                     : handler_rule(&t->to->on_status, (int)status);

    t->outcome = (struct queue_outcome){.result = result, .status = (int32_t)status};
    if (result == QUEUE_RETRY)
        t->outcome.delay_ms = to_answer_delay_ms(&t->answer);
    to_answer_reason(&t->answer, status, t->reason, sizeof(t->reason));
}

static void transfer_judge_failure(struct transfer *t, const char *why, long status) {
    char words[CURL_ERROR_SIZE];

    t->outcome = (struct queue_outcome){.result = t->sent ? QUEUE_UNKNOWN : QUEUE_UNBEGUN,
                                        .status = t->sent ? (int32_t)status : 0};
    if (t->late)
        why = "the lease was over before the endpoint was reached";
    if (t->again)
        why = "the connection was closed without a response";
    if (t->answer.head_len > TO_HEAD_MAX)
        why = "its header is longer than 64 KiB";
    handler_words(why, strlen(why), words, sizeof(words));
    snprintf(t->reason, sizeof(t->reason), "%s: %s",
             t->sent ? "it was sent, and the response did not come whole" : "it was not sent",
             words);
}

static void transfer_judge(struct transfer *t, CURLcode code) {
    long status = 0;

    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && t->sent && t->answer.whole_head)
        transfer_judge_response(t, status);
    else if (code == CURLE_OK)
        transfer_judge_failure(t, "the connection was closed within the header", status);
    else
        transfer_judge_failure(t, t->error[0] != '\0' ? t->error : curl_easy_strerror(code),
                               status);
}

/* Takes the transfer back from libcurl. */
static void transfer_give_up(struct transfer *t, const char *why) {
    (void)curl_multi_remove_handle(t->to->multi, t->easy);
    t->flying = false;
    transfer_judge_failure(t, why, 0);
}

static void to_transfer_late(struct idem_timer *timer) {
    struct transfer *t = idem_container_of(timer, struct transfer, limit);

    transfer_give_up(t, "its time is over");
    transfer_report(t);
}

/* Between libcurl and the loop. */

static void to_collect(struct to *to) {
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(to->multi, &left)) != NULL) {
        struct transfer *t = NULL;
        CURLcode code = message->data.result;

        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        (void)curl_multi_remove_handle(to->multi, message->easy_handle);
        t->flying = false;
        transfer_judge(t, code);
        transfer_report(t);
    }
}

static void to_act(struct to *to, curl_socket_t fd, int what) {
    int running;

    (void)curl_multi_socket_action(to->multi, fd, what, &running);
    to_collect(to);
}

static void to_fire(struct idem_timer *timer) {
    to_act(idem_container_of(timer, struct to, timer), CURL_SOCKET_TIMEOUT, 0);
}

static void to_socket_ready(struct idem_fd *fd, int events) {
    struct to_socket *s = idem_container_of(fd, struct to_socket, fd);

    to_act(s->to, fd->fd,
           (events & IDEM_READ ? CURL_CSELECT_IN : 0) |
               (events & IDEM_WRITE ? CURL_CSELECT_OUT : 0));
}

static int to_on_timer(CURLM *multi, long ms, void *data) {
    struct to *to = data;

    (void)multi;
    if (ms < 0)
        idem_timer_clear(to->loop, &to->timer);
    else
        idem_timer_set(to->loop, &to->timer, ms);
    return 0;
}

/* If there is no memory to watch the socket, `limit` ends its transfer. */
static int to_on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *at) {
    struct to *to = data;
    struct to_socket *s = at;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL)
            idem_epoll_set_unwatch(&to->epoll_set, &s->fd);
        free(s);
        return 0;
    }
    if (s == NULL) {
        s = calloc(1, sizeof(*s));
        if (s == NULL)
            return 0;
        *s = (struct to_socket){.to = to, .fd = {.fd = fd, .ready = to_socket_ready}};
        (void)curl_multi_assign(to->multi, fd, s);
    }
    (void)idem_epoll_set_watch(&to->epoll_set, &s->fd,
                               (what & CURL_POLL_IN ? IDEM_READ : 0) |
                                   (what & CURL_POLL_OUT ? IDEM_WRITE : 0));
    return 0;
}

/* Callbacks of libcurl. */

static int to_on_request(void *data, char *ip, char *local_ip, int port, int local_port) {
    struct transfer *t = data;

    (void)ip;
    (void)local_ip;
    (void)port;
    (void)local_port;
    t->again = t->sent;
    t->late = !t->sent && idem_loop_now() >= t->run->not_after;
    if (t->again || t->late)
        return CURL_PREREQFUNC_ABORT;
    t->sent = true;
    return CURL_PREREQFUNC_OK;
}

static size_t to_on_header(char *line, size_t size, size_t n, void *data) {
    struct transfer *t = data;

    t->answer.head_len += size * n;
    if (t->answer.head_len > TO_HEAD_MAX)
        return 0;
    to_answer_line(&t->answer, line, size * n);
    return size * n;
}

static size_t to_on_body(char *bytes, size_t size, size_t n, void *data) {
    struct transfer *t = data;

    to_answer_body(&t->answer, bytes, size * n);
    return size * n;
}

/* Transfers. */

/* Options that are the same for every message. No proxy and no credentials from the
   environment, no redirects: a message goes to the operator's URL and nowhere else. */
static bool transfer_set_options(struct transfer *t, CURL *easy) {
    const struct to *to = t->to;

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

    return SET(CURLOPT_PRIVATE, t) && SET(CURLOPT_ERRORBUFFER, t->error) &&
           SET(CURLOPT_URL, to->url) && SET(CURLOPT_PROTOCOLS_STR, "http,https") &&
           SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_POST, 1L) &&
           SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PROXY, "") &&
           SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) &&
           SET(CURLOPT_USERAGENT, "idem/" IDEM_VERSION) &&
           SET(CURLOPT_TIMEOUT_MS, to->timeout_ms) && SET(CURLOPT_NOSIGNAL, 1L) &&
           SET(CURLOPT_QUICK_EXIT,
               1L) && /* otherwise cleanup would wait for a name that does not resolve */
           SET(CURLOPT_MAXAGE_CONN, IDLE_S) &&
           SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) &&
           (to->ca_file == NULL || SET(CURLOPT_CAINFO, to->ca_file)) &&
           SET(CURLOPT_PREREQFUNCTION, to_on_request) && SET(CURLOPT_PREREQDATA, t) &&
           SET(CURLOPT_HEADERFUNCTION, to_on_header) && SET(CURLOPT_HEADERDATA, t) &&
           SET(CURLOPT_WRITEFUNCTION, to_on_body) && SET(CURLOPT_WRITEDATA, t);
#undef SET
}

static bool transfer_easy(struct transfer *t) {
    CURL *easy;

    if (t->easy != NULL)
        return true;
    easy = curl_easy_init();
    if (easy == NULL)
        return false;
    if (!transfer_set_options(t, easy)) {
        curl_easy_cleanup(easy);
        return false;
    }
    t->easy = easy;
    return true;
}

static bool transfer_start(struct transfer *t) {
    struct idem_bytes body = t->run->message->body;

    if (!transfer_easy(t))
        return false;
    t->headers = handler_to_request_headers(t->run, t->to->prefix);
    if (t->headers == NULL ||
        curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers) != CURLE_OK ||
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len) != CURLE_OK ||
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, body.len == 0 ? (const void *)"" : body.at) !=
            CURLE_OK)
        return false;
    t->flying = curl_multi_add_handle(t->to->multi, t->easy) == CURLM_OK;
    if (t->flying)
        idem_timer_set(t->to->loop, &t->limit, t->to->timeout_ms + LATE_MS);
    return t->flying;
}

static void to_begin(void *data, struct queue_run *run) {
    struct to *to = data;
    struct transfer *t = to->free;

    if (t == NULL) /* the caller exceeded `workers` */
        abort();
    to->free = t->next;
    t->run = run;
    run->data = t;
    t->sent = t->late = t->again = false;
    t->answer = (struct to_answer){0};
    t->error[0] = '\0';
    if (transfer_start(t))
        return;
    transfer_judge_failure(t, "there was no memory for a request", 0);
    idem_task_post(to->loop, &t->report_task);
}

static void to_cancel(void *data, struct queue_run *run) {
    struct to *to = data;
    struct transfer *t = run->data;

    if (!t->flying)
        return;
    transfer_give_up(t, "it was cancelled");
    idem_timer_clear(to->loop, &t->limit);
    idem_task_post(to->loop, &t->report_task);
}

/* Creation and release. */

static void to_close(void *data) {
    struct to *to = data;

    for (unsigned i = 0; i < to->workers; i++) {
        struct transfer *t = &to->transfers[i];

        if (t->flying)
            (void)curl_multi_remove_handle(to->multi, t->easy);
        curl_easy_cleanup(t->easy);
        curl_slist_free_all(t->headers);
        idem_task_drop(to->loop, &t->report_task);
        idem_timer_clear(to->loop, &t->limit);
    }
    if (to->multi != NULL)
        (void)curl_multi_cleanup(to->multi);
    idem_timer_clear(to->loop, &to->timer);
    idem_epoll_set_close(&to->epoll_set);
    free(to->url);
    free(to->prefix);
    free(to->ca_file);
    free(to);
    curl_global_cleanup();
}

static int to_init_multi(struct to *to, struct idem_error *err) {
    to->multi = curl_multi_init();
    if (to->multi == NULL ||
        curl_multi_setopt(to->multi, CURLMOPT_SOCKETFUNCTION, to_on_socket) != CURLM_OK ||
        curl_multi_setopt(to->multi, CURLMOPT_SOCKETDATA, to) != CURLM_OK ||
        curl_multi_setopt(to->multi, CURLMOPT_TIMERFUNCTION, to_on_timer) != CURLM_OK ||
        curl_multi_setopt(to->multi, CURLMOPT_TIMERDATA, to) != CURLM_OK ||
        curl_multi_setopt(to->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING) != CURLM_OK ||
        curl_multi_setopt(to->multi, CURLMOPT_MAXCONNECTS, (long)to->workers) != CURLM_OK)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    return 0;
}

static int to_init(struct to *to, const struct handler_to_config *config, struct idem_error *err) {
    int rc = 0;

    to->workers = config->workers;
    to->timeout_ms = (long)config->timeout_ms;
    to->timer.fire = to_fire;
    to->url = strdup(config->url);
    to->prefix = strdup(config->prefix);
    to->ca_file = config->ca_file == NULL ? NULL : strdup(config->ca_file);
    if (to->url == NULL || to->prefix == NULL || (config->ca_file != NULL && to->ca_file == NULL))
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    if (config->on_status != NULL)
        to->on_status = *config->on_status;
    else
        rc = handler_on_status_parse(NULL, &to->on_status, err);
    if (rc == 0)
        rc = idem_epoll_set_open(&to->epoll_set, to->loop, err);
    if (rc == 0)
        rc = to_init_multi(to, err);
    for (unsigned i = to->workers; rc == 0 && i-- > 0;) {
        to->transfers[i] = (struct transfer){.to = to,
                                             .report_task.run = to_transfer_task,
                                             .limit.fire = to_transfer_late,
                                             .next = to->free};
        to->free = &to->transfers[i];
    }
    return rc;
}

/* The URL may contain a password: no error shows it. */
static int to_check_url(const char *url, struct idem_error *err) {
    CURLU *parts = curl_url();
    char *scheme = NULL;
    CURLUcode code = CURLUE_OUT_OF_MEMORY;
    bool web;

    if (parts != NULL)
        code = curl_url_set(parts, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME);
    if (code == CURLUE_OK)
        code = curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0);
    web = scheme != NULL && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    curl_url_cleanup(parts);
    if (code == CURLUE_OUT_OF_MEMORY)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    if (code != CURLUE_OK)
        return idem_error_set(err, IDEM_E_INVALID,
                              "--to: this is no URL (%s); one is http://127.0.0.1:9000/handle",
                              curl_url_strerror(code));
    if (!web)
        return idem_error_set(err, IDEM_E_INVALID, "--to: the URL begins with http:// or https://");
    return 0;
}

static int to_check_config(const struct handler_to_config *config, struct idem_error *err) {
    int rc = to_check_url(config->url, err);

    if (rc < 0)
        return rc;
    if (config->timeout_ms < 1 || config->timeout_ms > HANDLER_DELAY_MAX_MS)
        return idem_error_set(err, IDEM_E_INVALID, "--to-timeout is from 1ms to 24h");
    return handler_open_check_workers(config->workers, err);
}

int handler_to_open(const struct handler_to_config *config, struct idem_loop *loop,
                    struct handler *ret, struct idem_error *err) {
    struct to *to;
    int rc = to_check_config(config, err);

    if (rc < 0)
        return rc;
    to = calloc(1, sizeof(*to) + config->workers * sizeof(to->transfers[0]));
    if (to == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(to);
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    }
    to->loop = loop;
    rc = to_init(to, config, err);
    if (rc < 0) {
        to_close(to);
        return rc;
    }
    *ret = (struct handler){
        .queue = {.data = to, .workers = config->workers, .begin = to_begin, .cancel = to_cancel},
        .close = to_close,
    };
    return 0;
}
