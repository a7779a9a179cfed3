/*
 * `idem dead`: lists the messages that could not be handled, and requeues them. Fails if the broker
 * cannot be reached or has no such queue. A requeue has four steps, and nothing is lost if it ends
 * after any of them: the audit records it, the record is forgotten, the copy is confirmed, the
 * letter is removed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/units.h"
#include "cli/audit_file.h"
#include "loop/signals.h"
#include "queue/dead_letter.h"
#include "store/store.h"
#include "json/json_out.h"

struct dead {
    const struct cli_values *values;
    const struct queue_dead_broker *broker;
    struct queue_dead *place;
    char *url, *name;
    struct idem *h; /* opened when a record must be looked up */
    struct cli_audit audit;
    char broker_url[256]; /* for the audit: without its password */
    int64_t n;            /* number of the current letter, from 1 */
    int64_t done, kept;
};

/* The action on one letter. CLI_OK, or the exit status to end with, after a message. */
typedef int dead_fn(struct dead *d, const struct queue_letter *letter);

/* A header that idem consume has added, as printable text; "" if it is missing. */
static const char *queue_letter_header(const struct queue_letter *letter, const char *name,
                                       char *buf, size_t size) {
    const struct queue_field *field = queue_message_header(letter->message, name);
    char text[1100];

    buf[0] = '\0';
    if (field == NULL)
        return buf;
    snprintf(text, sizeof(text), "%.*s", (int)(field->value.len < 1099 ? field->value.len : 1099),
             (const char *)field->value.at);
    return cli_printable(text, buf, size);
}

/* List. */

static const struct {
    const char *title, *name;
    int width;
} columns[] = {
    {"AT", QUEUE_DEAD_AT, 20},
    {"VERDICT", QUEUE_DEAD_VERDICT, 9},
    {"TRIES", QUEUE_DEAD_ATTEMPTS, 5},
    {"STATUS", QUEUE_DEAD_STATUS, 6},
    {"KEY", QUEUE_DEAD_HASH, CLI_HASH_SHORT},
    {"QUEUE", QUEUE_DEAD_QUEUE, 12},
    {"REASON", QUEUE_DEAD_REASON, 0},
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

static void json_out_fields(struct json_out *json, const char *name,
                            const struct queue_field *fields, size_t n) {
    json_out_open(json, name);
    for (size_t i = 0; i < n; i++) {
        fputs(json->more ? "," : "", json->out);
        json_out_string(json->out, (const char *)fields[i].name.at, fields[i].name.len);
        fputc(':', json->out);
        if (fields[i].json)
            fwrite(fields[i].value.at, 1, fields[i].value.len, json->out);
        else
            json_out_string(json->out, (const char *)fields[i].value.at, fields[i].value.len);
        json->more = true;
    }
    json_out_close(json);
}

static void dead_letter_json(const struct dead *d, const struct queue_letter *letter, bool body) {
    const struct queue_message *message = letter->message;
    struct json_out json = {.out = stdout};

    json_out_open(&json, NULL);
    json_out_int(&json, "number", d->n);
    json_out_fields(&json, "headers", message->headers, message->headers_n);
    json_out_fields(&json, "properties", message->properties, message->properties_n);
    json_out_uint(&json, "size", message->body.len);
    if (body && idem_utf8_valid((const char *)message->body.at, message->body.len)) {
        fputs(",\"body\":", stdout);
        json_out_string(stdout, (const char *)message->body.at, message->body.len);
    }
    json_out_line(&json);
}

static int dead_list_one(struct dead *d, const struct queue_letter *letter) {
    char text[300];

    if (d->values->json) {
        dead_letter_json(d, letter, false);
        return CLI_OK;
    }
    if (d->n == 1) {
        printf("%6s", "N");
        for (size_t i = 0; i < COLUMNS; i++)
            printf("  %-*s", columns[i].width, columns[i].title);
        putchar('\n');
    }
    printf("%6" PRId64, d->n);
    for (size_t i = 0; i < COLUMNS; i++)
        printf("  %-*.*s", columns[i].width, columns[i].width == 0 ? 200 : columns[i].width,
               queue_letter_header(letter, columns[i].name, text, sizeof(text)));
    putchar('\n');
    return CLI_OK;
}

/* Show. */

static void command_dead_fields_print(const char *title, const struct queue_field *fields,
                                      size_t n) {
    for (size_t i = 0; i < n; i++) {
        char name[300], value[1100], clean_name[300], clean_value[1100];

        snprintf(name, sizeof(name), "%.*s", (int)fields[i].name.len,
                 (const char *)fields[i].name.at);
        snprintf(value, sizeof(value), "%.*s",
                 (int)(fields[i].value.len < 1000 ? fields[i].value.len : 1000),
                 (const char *)fields[i].value.at);
        printf("%-10s %s: %s\n", i == 0 ? title : "",
               cli_printable(name, clean_name, sizeof(clean_name)),
               cli_printable(value, clean_value, sizeof(clean_value)));
    }
}

static int dead_show_one(struct dead *d, const struct queue_letter *letter) {
    const struct queue_message *message = letter->message;

    if (d->values->result) {
        fwrite(message->body.at, 1, message->body.len, stdout);
    } else if (d->values->json) {
        dead_letter_json(d, letter, true);
    } else {
        command_dead_fields_print("headers", message->headers, message->headers_n);
        command_dead_fields_print("properties", message->properties, message->properties_n);
        printf("%-10s %zu bytes (--result writes them as they are)\n", "body", message->body.len);
    }
    return CLI_OK;
}

/* Requeue. */

/* The record of a letter that is being requeued; empty if the letter names none. */
struct requeue {
    char prefix[IDEM_PREFIX_MAX + 1], hash[IDEM_HEX_LEN + 1];
    const char *before, *after; /* states of the record; NULL: not looked up */
    bool forget;
};

/* Decides if the record must be forgotten: a failed one would make the message dead again. */
static int dead_record_judge(const struct dead *d, const struct idem_entry *entry,
                             struct requeue *requeue) {
    bool uncertain = entry->state == IDEM_RUNNING && entry->uncertain;

    if (uncertain && !d->values->force)
        return cli_fail(
            CLI_UNCERTAIN,
            "dead: number %" PRId64
            " is uncertain: it may have happened. Find out, and settle it with idem settle "
            "--hash %.*s --done or --failed; or have it run again with --force",
            d->n, CLI_HASH_SHORT, requeue->hash);
    /* Done: an operator has settled it, and the message will be a duplicate. Running: the message
       waits until the run ends. A damaged record, or one of a newer version, is left to the
       consumer. */
    requeue->forget = entry->state == IDEM_FAILED || uncertain;
    if (requeue->forget)
        requeue->after = "absent";
    return CLI_OK;
}

static int dead_record_lookup(struct dead *d, const struct queue_letter *letter,
                              struct requeue *requeue) {
    struct idem_name name = {.prefix = requeue->prefix, .hash = requeue->hash};
    struct idem_entry entry;
    struct idem_error err;
    int status = CLI_OK;
    char verdict[32];

    queue_letter_header(letter, QUEUE_DEAD_VERDICT, verdict, sizeof(verdict));
    /* After a mismatch the record belongs to another message. */
    if (requeue->hash[0] == '\0' || strcmp(verdict, "mismatch") == 0)
        return CLI_OK;
    if (letter->claimed && !d->values->force)
        return cli_fail(
            CLI_UNCERTAIN,
            "dead: number %" PRId64
            " names a record, and the server does not vouch that idem consume has written that: "
            "a sender can, where the broker itself sends messages here. Look at it with idem "
            "dead show; --force believes it",
            d->n);
    if (d->h == NULL)
        d->h = cli_open(d->values, &status);
    if (d->h == NULL)
        return status;
    if (idem_lookup(d->h, &name, &entry, &err) < 0)
        return err.code == IDEM_E_ABSENT ? CLI_OK : cli_message_error("dead", &err);
    requeue->before = requeue->after = cli_entry_state(&entry);
    status = dead_record_judge(d, &entry, requeue);
    idem_entry_release(&entry);
    return status;
}

static int dead_record_forget(struct dead *d, struct requeue *requeue, struct idem_error *err) {
    struct idem_name name = {.prefix = requeue->prefix, .hash = requeue->hash};

    if (!requeue->forget || idem_forget(d->h, &name, false, err) == 0)
        return 0;
    requeue->after = err->code == IDEM_E_UNKNOWN ? "unknown" : requeue->before;
    return err->code == IDEM_E_ABSENT || err->code == IDEM_E_LIVE ? 0 : err->code;
}

static void command_dead_requeue_init(const struct queue_letter *letter, struct requeue *requeue) {
    unsigned char parsed[IDEM_HASH_LEN];

    *requeue = (struct requeue){.before = NULL};
    queue_letter_header(letter, QUEUE_DEAD_RECORD_PREFIX, requeue->prefix, sizeof(requeue->prefix));
    queue_letter_header(letter, QUEUE_DEAD_HASH, requeue->hash, sizeof(requeue->hash));
    if (requeue->prefix[0] == '\0' || !idem_hex_parse(requeue->hash, strlen(requeue->hash), parsed))
        requeue->prefix[0] = requeue->hash[0] = '\0';
}

/* Writes an audit line; it names the record's store only if the record was looked up. */
static void dead_requeue_audit(struct dead *d, const struct requeue *requeue, const char *result,
                               const char *refused) {
    struct idem_audit line = {
        .result = result,
        .record = requeue->hash,
        .prefix = requeue->prefix,
        .store = requeue->before == NULL ? NULL : d->audit.store,
        .broker = d->broker_url,
        .queue = d->values->queue,
        .before = requeue->before,
        .after = requeue->after,
        .force = d->values->force,
        .refused = refused,
    };

    cli_audit_put(&d->audit, &line);
}

/* A letter goes back to the queue that the operator names, never to another one that the letter
   itself names. */
static int dead_origin_check(const struct dead *d, const struct queue_letter *letter) {
    char from[512], clean[512];

    queue_letter_header(letter, QUEUE_DEAD_QUEUE, from, sizeof(from));
    if (from[0] == '\0' || strcmp(from, d->values->queue) == 0)
        return CLI_OK;
    return cli_fail(CLI_UNCERTAIN,
                    "dead: number %" PRId64 " came from %s: requeue it with --queue and that name",
                    d->n, cli_printable(from, clean, sizeof(clean)));
}

/* Requeues a letter. The audit has its beginning already. */
static int dead_requeue(struct dead *d, const struct queue_letter *letter,
                        struct requeue *requeue) {
    struct idem_error err;

    if (dead_record_forget(d, requeue, &err) < 0 ||
        d->broker->requeue(d->place, d->values->queue, &err) < 0) {
        dead_requeue_audit(d, requeue, idem_audit_result(err.code), err.text);
        return cli_message_error("dead", &err);
    }
    /* The copy is confirmed. If the letter cannot be removed, its key makes one of both a
       duplicate. */
    dead_requeue_audit(d, requeue, "done", NULL);
    if (d->broker->remove(d->place, letter->receipt, &err) < 0)
        return cli_message_error("dead", &err);
    d->done++;
    return CLI_OK;
}

static int dead_requeue_one(struct dead *d, const struct queue_letter *letter) {
    struct requeue requeue;
    int status = dead_origin_check(d, letter);

    if (status == CLI_OK && d->values->dry_run)
        return dead_list_one(d, letter);
    command_dead_requeue_init(letter, &requeue);
    if (status == CLI_OK)
        status = dead_record_lookup(d, letter, &requeue);
    if (status != CLI_OK) {
        dead_requeue_audit(d, &requeue, status == CLI_UNCERTAIN ? "refused" : "failed", NULL);
        d->kept += status == CLI_UNCERTAIN && d->values->all;
        return status == CLI_UNCERTAIN && d->values->all ? CLI_OK : status;
    }
    signals_defer();
    dead_requeue_audit(d, &requeue, "begun", NULL);
    status = cli_audit_ready(&d->audit);
    if (status == CLI_OK)
        status = dead_requeue(d, letter, &requeue);
    if (status == CLI_OK && signals_pending())
        return cli_fail(CLI_SYSTEM, "dead: stopped by a signal");
    signals_resume();
    return status;
}

/* The command. */

static const struct {
    const char *name;
    dead_fn *each;
    bool one; /* needs --number or --all */
} actions[] = {{"list", dead_list_one, false},
               {"show", dead_show_one, true},
               {"requeue", dead_requeue_one, true}};

static int dead_letters_walk(struct dead *d, dead_fn *each, int64_t only) {
    struct queue_letter letter;
    struct idem_error err;
    int status = CLI_OK;

    while (status == CLI_OK) {
        if (d->broker->next(d->place, &letter, &err) < 0)
            return cli_message_error("dead", &err);
        if (letter.message == NULL) {
            if (only != 0)
                return cli_fail(CLI_ABSENT,
                                "dead: %s has %" PRId64 " letters, and none of number %" PRId64,
                                d->name, d->n, only);
            return CLI_OK;
        }
        d->n++;
        if (only == 0 || d->n == only)
            status = each(d, &letter);
        if (d->n == only)
            break;
    }
    return status;
}

static int dead_place_open(struct dead *d) {
    struct queue_dead_config config = {.body_field = d->values->body_field};
    struct idem_error err;

    d->url = cli_secret_url(d->values->operands[1]);
    if (d->url == NULL)
        return CLI_SYSTEM;
    if (d->values->dead_letter != NULL ? (d->name = strdup(d->values->dead_letter)) == NULL
                                       : asprintf(&d->name, "%s.dead", d->values->queue) < 0) {
        d->name = NULL;
        return CLI_SYSTEM;
    }
    (void)idem_url_public(d->url, d->broker_url, sizeof(d->broker_url));
    d->broker = queue_dead_find(d->url, &err);
    if (d->broker == NULL)
        return cli_message_error("dead", &err);
    config.url = d->url;
    config.queue = d->name;
    if (d->broker->open(&config, &d->place, &err) == 0)
        return CLI_OK;
    d->place = NULL;
    if (err.code != IDEM_E_ABSENT)
        return cli_message_error("dead", &err);
    return cli_fail(CLI_ABSENT, "dead: there is no %s, so there are no dead letters", d->name);
}

static int values_check(const struct cli_values *values, size_t *ret) {
    if (values->operands_n == 2 && (values->queue != NULL || values->dead_letter != NULL)) {
        for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
            if (strcmp(values->operands[0], actions[i].name) != 0)
                continue;
            *ret = i;
            if (actions[i].each == dead_requeue_one && values->queue == NULL)
                return cli_fail(CLI_USAGE,
                                "dead: --queue is missing: the queue that they go back to");
            if (!actions[i].one || values->letter != 0 || (values->all && i == 2))
                return CLI_OK;
            return cli_fail(
                CLI_USAGE,
                "dead: --number N is missing: which one, as idem dead list counts them%s",
                i == 2 ? ", or --all" : "");
        }
    }
    return cli_usage("dead", "an action, the broker's URL and the queue are needed: idem dead "
                             "list|show|requeue URL --queue NAME");
}

static int command_dead_run(const struct cli_values *values) {
    struct dead d = {.values = values};
    size_t action = 0;
    int status = values_check(values, &action), written;

    if (status == CLI_OK && actions[action].each == dead_requeue_one && !values->dry_run)
        status = cli_audit_open(&d.audit, values, "requeue");
    if (status == CLI_OK)
        status = dead_place_open(&d);
    if (status == CLI_OK)
        status = dead_letters_walk(&d, actions[action].each,
                                   actions[action].one && !values->all ? values->letter : 0);
    if (d.place != NULL)
        d.broker->close(d.place);
    if (status == CLI_OK)
        status = cli_flush();
    if (d.done + d.kept != 0)
        cli_message("%" PRId64 " requeued, %" PRId64 " kept", d.done, d.kept);
    written = cli_audit_close(&d.audit);
    if (status == CLI_OK)
        status = d.kept != 0 ? CLI_UNCERTAIN : written;
    idem_close(d.h);
    free(d.url);
    free(d.name);
    signals_resume();
    return status;
}

static const char *const dead_options[] = {
    "queue",        "dead-letter", "dead-number", "all",   "force-uncertain",
    "dead-dry-run", "body-field",  "audit",       "store", "json",
    "dead-result",  "help",        NULL};

const struct cli_command cli_dead = {
    .name = "dead",
    .summary = "messages that could not be handled",
    .synopsis = "list|show|requeue URL --queue NAME [OPTIONS]",
    .text = "Lists the dead letters of a queue from the oldest, shows one, or has them handled\n"
            "again: `requeue` forgets that the message has failed (--store), sends it back to its\n"
            "queue, and then removes it here, with a line in the audit. Letters that are only\n"
            "shown stay where they are.\n",
    .after = "  idem dead list amqp://localhost --queue orders\n"
             "  idem dead requeue amqp://localhost --queue orders --number 3\n",
    .operand = "a URL",
    .options = dead_options,
    .run = command_dead_run,
};
