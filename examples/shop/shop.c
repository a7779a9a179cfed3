/*
 * A small shop, to run behind a gateway: an HTTP/1.1 server with a real SQLite
 * file of orders. It ignores retries: each POST that reaches it is one more order.
 *
 *     POST /orders {"item": "book", "amount": 42}   201, Location, the order
 *     GET /orders                                   all of them
 *     GET /orders/N                                 one of them
 *     GET /orders/by-key/KEY                        the one made under this
 *                                                   Idem-Downstream-Key, or 404: for
 *                                                   idem_probe; without KEY, that of
 *                                                   the header
 *
 *     GET /                                         a page to buy on, with page.js and
 *                                                   page.css, and a cookie: the session
 *     POST /form/orders item=book&amount=42         the same order by a form; the
 *                                                   response is a page
 *
 *     ?sleep=2      waits this many seconds before it makes the order
 *     ?fail=after   makes the order, and then responds 500
 *     ?fail=before  responds 500 without an order
 *
 * Each connection has a thread, and carries one request. A malformed request gets
 * 400, one that is too long 413 or 431, and one without a Content-Length 411.
 *
 *     shop [PORT [FILE]]      port 9000 (0: any that is free), file shop.db
 */
#include "page.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define BODY_MAX 65536
#define UNREAD_MAX (8 << 20)
#define KEY_MAX 128
#define SLEEP_MAX 60

struct request {
    char bytes[HEAD_MAX + BODY_MAX + 1];
    size_t len;
    char *path, *query, *body;
    bool post;
    bool known;    /* the client has a session */
    long body_len; /* -1: not given */
    char key[KEY_MAX];
};

static sqlite3 *db;
static pthread_mutex_t db_lock = PTHREAD_MUTEX_INITIALIZER;

/* Orders. */

#define ORDER "json_object('id', id, 'item', item, 'amount', amount)"

/* Runs a statement that returns one text; returns a copy, or NULL if there is none. */
static char *ask(const char *sql, const char *first, const char *second, bool *ret_failed) {
    sqlite3_stmt *statement = NULL;
    char *text = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);

    if (rc == SQLITE_OK && first != NULL)
        rc = sqlite3_bind_text(statement, 1, first, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK && second != NULL)
        rc = sqlite3_bind_text(statement, 2, second, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW && sqlite3_column_text(statement, 0) != NULL)
        text = strdup((const char *)sqlite3_column_text(statement, 0));
    if (rc == SQLITE_ROW) /* an INSERT is not done before its last step */
        rc = sqlite3_step(statement);
    *ret_failed = rc != SQLITE_DONE;
    if (*ret_failed)
        warnx("sqlite: %s", sqlite3_errmsg(db));
    sqlite3_finalize(statement);
    return text;
}

static char *db_ask(const char *sql, const char *first, const char *second, bool *ret_failed) {
    char *text;

    pthread_mutex_lock(&db_lock);
    text = ask(sql, first, second, ret_failed);
    pthread_mutex_unlock(&db_lock);
    return text;
}

static void db_open(const char *file) {
    static const char table[] =
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, amount "
        "NUMERIC NOT NULL, downstream_key TEXT, made TEXT DEFAULT CURRENT_TIMESTAMP)";

    if (sqlite3_open(file, &db) != SQLITE_OK ||
        sqlite3_exec(db, table, NULL, NULL, NULL) != SQLITE_OK)
        errx(1, "%s: %s", file, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 5000);
}

/* Responses. */

static void send_all(int fd, const char *bytes, size_t len) {
    ssize_t n;

    for (; len > 0; bytes += n, len -= (size_t)n) {
        n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            return; /* the client has disconnected */
    }
}

static void answer_as(int fd, const char *status, const char *type, const char *fields,
                      const char *text) {
    char head[1024];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                     "%sConnection: close\r\n\r\n",
                     status, type, strlen(text) + 1, fields);

    send_all(fd, head, (size_t)n);
    send_all(fd, text, strlen(text));
    send_all(fd, "\n", 1);
}

static void answer(int fd, const char *status, const char *location, const char *json) {
    char fields[128] = "";

    if (location != NULL)
        snprintf(fields, sizeof(fields), "Location: %s\r\n", location);
    answer_as(fd, status, "application/json", fields, json);
}

static void refuse(int fd, const char *status) {
    char json[128];

    snprintf(json, sizeof(json), "{\"error\":\"%s\"}", status);
    answer(fd, status, NULL, json);
}

/* A page for people. With `greet` it starts a session, by which the gateway distinguishes them. */
static void answer_person(int fd, const char *status, const char *type, bool greet,
                          const char *text) {
    static const char fixed[] =
        "Content-Security-Policy: " PAGE_POLICY "\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
        "Cache-Control: no-cache\r\n";
    char fields[sizeof(fixed) + 128];
    unsigned long long session[2];
    int n = snprintf(fields, sizeof(fields), "%s", fixed);

    if (greet && getrandom(session, sizeof(session), 0) == sizeof(session))
        snprintf(fields + n, sizeof(fields) - (size_t)n,
                 "Set-Cookie: session=%016llx%016llx; Path=/; HttpOnly; SameSite=Lax\r\n",
                 session[0], session[1]);
    answer_as(fd, status, type, fields, text);
}

/* The parameters of a request. */

static const char *parameter(const struct request *r, const char *name) {
    size_t len = strlen(name);

    for (const char *at = r->query; at != NULL; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, name, len) == 0 && at[len] == '=')
            return at + len + 1;
    }
    return NULL;
}

static bool parameter_is(const struct request *r, const char *name, const char *value) {
    const char *said = parameter(r, name);

    return said != NULL && strcspn(said, "&") == strlen(value) &&
           strncmp(said, value, strlen(value)) == 0;
}

static void dawdle(const struct request *r) {
    const char *said = parameter(r, "sleep");
    unsigned long seconds = said == NULL ? 0 : strtoul(said, NULL, 10);

    sleep(seconds > SLEEP_MAX ? SLEEP_MAX : (unsigned)seconds);
}

/* Makes an order from a JSON body. Returns its JSON, which the caller frees; or NULL, and the
 * status of the refusal. */
static char *order_place(const struct request *r, const char *json, const char **ret_refusal) {
    static const char insert[] =
        "INSERT INTO orders (item, amount, downstream_key) "
        "SELECT json_extract(?1, '$.item'), json_extract(?1, '$.amount'), nullif(?2, '') "
        "WHERE json_valid(?1) AND json_type(?1, '$.item') = 'text' "
        "AND json_type(?1, '$.amount') IN ('integer', 'real') RETURNING " ORDER;
    bool failed = true;
    char *order = NULL;

    dawdle(r);
    if (!parameter_is(r, "fail", "before"))
        order = db_ask(insert, json, r->key, &failed);
    if (!failed && !parameter_is(r, "fail", "after") && order != NULL)
        return order;
    *ret_refusal = failed || order != NULL ? "500 Internal Server Error" : "400 Bad Request";
    free(order);
    return NULL;
}

static unsigned long order_id(const char *order) {
    return strtoul(strchr(order, ':') + 1, NULL, 10);
}

static void order_make(int fd, const struct request *r) {
    const char *refusal = NULL;
    char *order = order_place(r, r->body, &refusal);
    char location[64];

    if (order == NULL) {
        refuse(fd, refusal);
        return;
    }
    snprintf(location, sizeof(location), "/orders/%lu", order_id(order));
    answer(fd, "201 Created", location, order);
    free(order);
}

/* Makes an order from a form. The response is a page and not a redirect: reloading it sends the
 * form again, which is there to be tried. */
static void form_take(int fd, const struct request *r) {
    static const char as_json[] = "SELECT json_object('item', ?1, 'amount', CAST(?2 AS NUMERIC)) "
                                  "WHERE ?1 <> '' AND ?2 GLOB '[0-9]*'";
    char item[256], amount[32], title[64] = "Not ordered", text[512];
    const char *status = "400 Bad Request";
    char *json = NULL, *order = NULL, *page;
    bool failed;

    if (form_field(r->body, "item", item, sizeof(item)) &&
        form_field(r->body, "amount", amount, sizeof(amount)))
        json = db_ask(as_json, item, amount, &failed);
    snprintf(text, sizeof(text), "The shop did not take this form.");
    if (json != NULL)
        order = order_place(r, json, &status);
    if (order != NULL) {
        status = "201 Created";
        snprintf(title, sizeof(title), "Order %lu is placed", order_id(order));
        snprintf(text, sizeof(text),
                 "Item: %s, amount: %s. Load this page again, and the form is sent again: it stays "
                 "this order, as long as the gateway remembers it (a plain form, 45 seconds).",
                 item, amount);
    }
    page = page_say(title, text);
    answer_person(fd, status, "text/html; charset=utf-8", false, page == NULL ? title : page);
    free(page);
    free(order);
    free(json);
}

static void order_show(int fd, const char *sql, const char *name) {
    bool failed;
    char *order = db_ask(sql, name, NULL, &failed);

    if (failed)
        refuse(fd, "500 Internal Server Error");
    else if (order == NULL)
        refuse(fd, "404 Not Found");
    else
        answer(fd, "200 OK", NULL, order);
    free(order);
}

static void serve(int fd, const struct request *r) {
    static const char by_key[] = "/orders/by-key";
    const struct page *page = r->post ? NULL : page_find(r->path);
    size_t len = strlen(by_key);
    const char *key;

    if (page != NULL) {
        answer_person(fd, "200 OK", page->type, !r->known && page->path[1] == '\0', page->text);
    } else if (strcmp(r->path, "/form/orders") == 0 && r->post) {
        form_take(fd, r);
    } else if (strcmp(r->path, "/orders") == 0 && r->post) {
        order_make(fd, r);
    } else if (r->post) {
        refuse(fd, "404 Not Found");
    } else if (strcmp(r->path, "/orders") == 0) {
        dawdle(r);
        order_show(fd, "SELECT json_group_array(json(" ORDER ")) FROM orders", NULL);
    } else if (strncmp(r->path, by_key, len) == 0 && (r->path[len] == '/' || !r->path[len])) {
        key = r->path[len] == '/' && r->path[len + 1] != '\0' ? r->path + len + 1 : r->key;
        order_show(fd, "SELECT " ORDER " FROM orders WHERE downstream_key = ?1", key);
    } else if (strncmp(r->path, "/orders/", 8) == 0) {
        order_show(fd, "SELECT " ORDER " FROM orders WHERE id = ?1", r->path + 8);
    } else {
        refuse(fd, "404 Not Found");
    }
}

/* Reading a request. Each part returns the status of the refusal, or NULL. */

static const char *field_read(struct request *r, char *line) {
    char *value = strchr(line, ':'), *end;

    if (value == NULL || value == line)
        return "400 Bad Request";
    *value++ = '\0';
    value += strspn(value, " \t");
    if (strcasecmp(line, "Transfer-Encoding") == 0)
        return "411 Length Required";
    if (strcasecmp(line, "Idem-Downstream-Key") == 0) {
        if (strlen(value) >= sizeof(r->key))
            return "400 Bad Request";
        snprintf(r->key, sizeof(r->key), "%s", value);
    }
    if (strcasecmp(line, "Cookie") == 0)
        r->known = strncmp(value, "session=", 8) == 0 || strstr(value, "; session=") != NULL;
    if (strcasecmp(line, "Content-Length") != 0)
        return NULL;
    if (r->body_len >= 0 || *value < '0' || *value > '9')
        return "400 Bad Request";
    errno = 0;
    r->body_len = strtol(value, &end, 10);
    if (errno != 0 || r->body_len > BODY_MAX)
        return "413 Content Too Large";
    return end[strspn(end, " \t")] == '\0' ? NULL : "400 Bad Request";
}

/* Returns the next line of the head, without its end; an empty line ends the head. */
static char *line_cut(char **at) {
    char *line = *at, *end = strstr(line, "\r\n");

    *end = '\0';
    *at = end + 2;
    return line;
}

static const char *head_read(struct request *r, char *head) {
    char *line = line_cut(&head), *target = strchr(line, ' ');
    char *version = target == NULL ? NULL : strchr(target + 1, ' ');
    const char *wrong;

    if (version == NULL || strncmp(version, " HTTP/1.", 8) != 0)
        return "400 Bad Request";
    *target++ = *version = '\0';
    r->post = strcmp(line, "POST") == 0;
    if (!r->post && strcmp(line, "GET") != 0)
        return "405 Method Not Allowed";
    r->path = target;
    r->query = strchr(target, '?');
    if (r->query != NULL)
        *r->query++ = '\0';
    for (line = line_cut(&head); line[0] != '\0'; line = line_cut(&head)) {
        wrong = field_read(r, line);
        if (wrong != NULL)
            return wrong;
    }
    return r->post && r->body_len < 0 ? "411 Length Required" : NULL;
}

/* Reads more bytes, up to `max` in all; false if the client sends no more. */
static bool more(int fd, struct request *r, size_t max) {
    ssize_t n;

    do
        n = r->len < max ? recv(fd, r->bytes + r->len, max - r->len, 0) : 0;
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    r->len += (size_t)n;
    r->bytes[r->len] = '\0';
    return true;
}

static const char *request_read(int fd, struct request *r) {
    const char *wrong;
    char *end;

    /* The texts end at the first NUL: a head that has one never ends. */
    while ((end = strstr(r->bytes, "\r\n\r\n")) == NULL)
        if (!more(fd, r, HEAD_MAX))
            return r->len < HEAD_MAX ? "400 Bad Request" : "431 Request Header Fields Too Large";
    r->body = end + 4;
    wrong = head_read(r, r->bytes);
    if (wrong != NULL)
        return wrong;
    while (r->body_len > r->bytes + r->len - r->body)
        if (!more(fd, r, sizeof(r->bytes) - 1))
            return "400 Bad Request";
    if (r->body_len >= 0)
        r->body[r->body_len] = '\0';
    return NULL;
}

/* A client that is refused may still be sending: closing at once would reset the connection, and
 * lose the refusal. */
static void hear_out(int fd) {
    struct timeval patience = {.tv_sec = 1};
    char bytes[4096];

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    for (int i = 0; i < UNREAD_MAX / (int)sizeof(bytes) && read(fd, bytes, sizeof(bytes)) > 0; i++)
        ;
}

static void *connection(void *data) {
    struct timeval patience = {.tv_sec = 30};
    int fd = (int)(long)data;
    struct request *r = calloc(1, sizeof(*r));
    const char *wrong = NULL;

    if (r != NULL) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        r->body_len = -1;
        wrong = request_read(fd, r);
        if (wrong != NULL)
            refuse(fd, wrong);
        else
            serve(fd, r);
    }
    free(r);
    shutdown(fd, SHUT_WR);
    if (wrong != NULL)
        hear_out(fd);
    close(fd);
    return NULL;
}

static int port_open(unsigned port, unsigned *ret_port) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((unsigned short)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        err(1, "port %u", port);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

int main(int argc, char **argv) {
    unsigned long port = argc > 1 ? strtoul(argv[1], NULL, 10) : 9000;
    const char *file = argc > 2 ? argv[2] : "shop.db";
    pthread_attr_t detached;
    pthread_t thread;
    unsigned got = 0;
    int door, fd;

    if (port > 65535)
        errx(64, "usage: shop [PORT [FILE]]");
    db_open(file);
    door = port_open((unsigned)port, &got);
    printf("shop: http://127.0.0.1:%u, orders in %s\n", got, file);
    fflush(stdout);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (;;) {
        fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            usleep(1000); /* aborted, or no descriptor free for the moment */
        else if (pthread_create(&thread, &detached, connection, (void *)(long)fd) != 0)
            close(fd);
    }
}
