/*
 * `idem dead`: the messages that could not be handled, and giving them another try.
 * Fails where the broker cannot be reached or has no such queue. A requeue goes in
 * four steps, of which each may be the last without losing anything: it is written
 * down, the record is forgotten, the copy is confirmed, the letter is removed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/audit.h"
#include "cli/signals.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/units.h"
#include "queue/dead.h"
#include "store/store.h"
#include "json/out.h"

struct dead {
    const struct cli_values *values;
    const struct queue_dead_broker *broker;
    struct queue_dead *place;
    char *url, *name;
    struct idem *h; /* opened when a record is to be forgotten */
    struct cli_audit audit;
    char broker_url[256]; /* without its password */
    int64_t n;            /* of the letter in hand, from 1 */
    int64_t done, kept;
};

/* What to do with one letter: CLI_OK, or the status to end with after saying why. */
typedef int dead_fn(struct dead *d, const struct queue_letter *letter);

/* A header of ours as a text; "" if there is none. */
static const char *header(const struct queue_letter *letter, const char *name, char *buf,
                          size_t size) {
    const struct queue_field *field = queue_header(letter->message, name);
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

static void fields_json(struct json_out *json, const char *name, const struct queue_field *fields,
                        size_t n) {
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

static void letter_json(const struct dead *d, const struct queue_letter *letter, bool body) {
    const struct queue_message *message = letter->message;
    struct json_out json = {.out = stdout};

    json_out_open(&json, NULL);
    json_out_int(&json, "number", d->n);
    fields_json(&json, "headers", message->headers, message->headers_n);
    fields_json(&json, "properties", message->properties, message->properties_n);
    json_out_uint(&json, "size", message->body.len);
    if (body && idem_utf8_valid((const char *)message->body.at, message->body.len)) {
        fputs(",\"body\":", stdout);
        json_out_string(stdout, (const char *)message->body.at, message->body.len);
    }
    json_out_line(&json);
}

static int list_one(struct dead *d, const struct queue_letter *letter) {
    char text[300];

    if (d->values->json) {
        letter_json(d, letter, false);
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
               header(letter, columns[i].name, text, sizeof(text)));
    putchar('\n');
    return CLI_OK;
}

/* Show. */

static void fields_print(const char *title, const struct queue_field *fields, size_t n) {
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

static int show_one(struct dead *d, const struct queue_letter *letter) {
    const struct queue_message *message = letter->message;

    if (d->values->result) {
        fwrite(message->body.at, 1, message->body.len, stdout);
    } else if (d->values->json) {
        letter_json(d, letter, true);
    } else {
        fields_print("headers", message->headers, message->headers_n);
        fields_print("properties", message->properties, message->properties_n);
        printf("%-10s %zu bytes (--result writes them as they are)\n", "body", message->body.len);
    }
    return CLI_OK;
}

/* Requeue. */

/* A letter that is being requeued, and the record that it names; "": none. */
struct requeue {
    char prefix[IDEM_PREFIX_MAX + 1], hash[IDEM_HEX_LEN + 1];
    const char *before, *after; /* its states; NULL: nobody has looked */
    bool forget;
};

/* Whether it is to be forgotten: a record that says "failed for good" would have it dead again. */
static int record_judge(const struct dead *d, const struct idem_entry *entry,
                        struct requeue *requeue) {
    bool uncertain = entry->state == IDEM_RUNNING && entry->uncertain;

    if (uncertain && !d->values->force) {
        cli_say("dead: number %" PRId64
                " is uncertain: nobody knows whether it happened. Find out, "
                "and say so with idem settle --hash %.*s --done or --failed; or have it run again "
                "with --force",
                d->n, CLI_HASH_SHORT, requeue->hash);
        return CLI_UNCERTAIN;
    }
    /* Done: somebody has settled it, and the message will be found to be a duplicate. Running: it
       is held until that is over. A record of another version or damaged is its reader's. */
    requeue->forget = entry->state == IDEM_FAILED || uncertain;
    if (requeue->forget)
        requeue->after = "absent";
    return CLI_OK;
}

static int record_look(struct dead *d, const struct queue_letter *letter, struct requeue *requeue) {
    struct idem_name name = {.prefix = requeue->prefix, .hash = requeue->hash};
    struct idem_entry entry;
    struct idem_error err;
    int status = CLI_OK;
    char verdict[32];

    header(letter, QUEUE_DEAD_VERDICT, verdict, sizeof(verdict));
    /* A mismatch is another message's record. */
    if (requeue->hash[0] == '\0' || strcmp(verdict, "mismatch") == 0)
        return CLI_OK;
    if (letter->claimed && !d->values->force) {
        cli_say(
            "dead: number %" PRId64
            " names a record, and the server does not vouch that idem consume has written that: "
            "a sender can, where the broker itself sends messages here. Look at it with idem "
            "dead show; --force believes it",
            d->n);
        return CLI_UNCERTAIN;
    }
    if (d->h == NULL)
        d->h = cli_open(d->values, &status);
    if (d->h == NULL)
        return status;
    if (idem_lookup(d->h, &name, &entry, &err) < 0)
        return err.code == IDEM_E_ABSENT ? CLI_OK : cli_say_error("dead", &err);
    requeue->before = requeue->after = cli_entry_state(&entry);
    status = record_judge(d, &entry, requeue);
    idem_entry_release(&entry);
    return status;
}

static int record_forget(struct dead *d, struct requeue *requeue, struct idem_error *err) {
    struct idem_name name = {.prefix = requeue->prefix, .hash = requeue->hash};

    if (!requeue->forget || idem_forget(d->h, &name, false, err) == 0)
        return 0;
    requeue->after = err->code == IDEM_E_UNKNOWN ? "unknown" : requeue->before;
    return err->code == IDEM_E_ABSENT || err->code == IDEM_E_LIVE ? 0 : err->code;
}

static void requeue_begin(const struct queue_letter *letter, struct requeue *requeue) {
    unsigned char parsed[IDEM_HASH_LEN];

    *requeue = (struct requeue){.before = NULL};
    header(letter, QUEUE_DEAD_RECORD_PREFIX, requeue->prefix, sizeof(requeue->prefix));
    header(letter, QUEUE_DEAD_HASH, requeue->hash, sizeof(requeue->hash));
    if (requeue->prefix[0] == '\0' || !idem_hex_parse(requeue->hash, parsed))
        requeue->prefix[0] = requeue->hash[0] = '\0';
}

/* In which queue it is now; with the record, where that was changed or looked at. */
static void requeue_note(struct dead *d, const struct requeue *requeue, const char *result,
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

/* It goes to the queue that the operator has named, and to no other that it may name itself. */
static int origin_check(const struct dead *d, const struct queue_letter *letter) {
    char from[512], clean[512];

    header(letter, QUEUE_DEAD_QUEUE, from, sizeof(from));
    if (from[0] == '\0' || strcmp(from, d->values->queue) == 0)
        return CLI_OK;
    cli_say("dead: number %" PRId64 " came from %s: requeue it with --queue and that name", d->n,
            cli_printable(from, clean, sizeof(clean)));
    return CLI_UNCERTAIN;
}

/* What is written down as begun. */
static int requeue_do(struct dead *d, const struct queue_letter *letter, struct requeue *requeue) {
    struct idem_error err;

    if (record_forget(d, requeue, &err) < 0 ||
        d->broker->requeue(d->place, d->values->queue, &err) < 0) {
        requeue_note(d, requeue, idem_audit_result(err.code), err.text);
        return cli_say_error("dead", &err);
    }
    /* The copy is there: should the letter stay, its key decides. */
    requeue_note(d, requeue, "done", NULL);
    if (d->broker->remove(d->place, letter->receipt, &err) < 0)
        return cli_say_error("dead", &err);
    d->done++;
    return CLI_OK;
}

static int requeue_one(struct dead *d, const struct queue_letter *letter) {
    struct requeue requeue;
    int status = origin_check(d, letter);

    if (status == CLI_OK && d->values->dry_run)
        return list_one(d, letter);
    requeue_begin(letter, &requeue);
    if (status == CLI_OK)
        status = record_look(d, letter, &requeue);
    if (status != CLI_OK) {
        requeue_note(d, &requeue, status == CLI_UNCERTAIN ? "refused" : "failed", NULL);
        d->kept += status == CLI_UNCERTAIN && d->values->all;
        return status == CLI_UNCERTAIN && d->values->all ? CLI_OK : status;
    }
    cli_signals_hold();
    requeue_note(d, &requeue, "begun", NULL);
    status = cli_audit_ready(&d->audit);
    if (status == CLI_OK)
        status = requeue_do(d, letter, &requeue);
    if (status == CLI_OK && cli_signals_came()) {
        cli_say("dead: stopped by a signal");
        return CLI_SYSTEM;
    }
    cli_signals_let();
    return status;
}

/* The whole. */

static const struct {
    const char *name;
    dead_fn *each;
    bool one; /* of one letter, or of --all */
} deeds[] = {{"list", list_one, false}, {"show", show_one, true}, {"requeue", requeue_one, true}};

static int letters_walk(struct dead *d, dead_fn *each, int64_t only) {
    struct queue_letter letter;
    struct idem_error err;
    int status = CLI_OK;

    while (status == CLI_OK) {
        if (d->broker->next(d->place, &letter, &err) < 0)
            return cli_say_error("dead", &err);
        if (letter.message == NULL) {
            if (only != 0) {
                cli_say("dead: %s has %" PRId64 " letters, and none of number %" PRId64, d->name,
                        d->n, only);
                return CLI_ABSENT;
            }
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

static int place_open(struct dead *d) {
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
        return cli_say_error("dead", &err);
    config.url = d->url;
    config.queue = d->name;
    if (d->broker->open(&config, &d->place, &err) == 0)
        return CLI_OK;
    d->place = NULL;
    if (err.code != IDEM_E_ABSENT)
        return cli_say_error("dead", &err);
    cli_say("dead: there is no %s, so there are no dead letters", d->name);
    return CLI_ABSENT;
}

static int values_check(const struct cli_values *values, size_t *ret) {
    if (values->operands_n == 2 && (values->queue != NULL || values->dead_letter != NULL)) {
        for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
            if (strcmp(values->operands[0], deeds[i].name) != 0)
                continue;
            *ret = i;
            if (deeds[i].each == requeue_one && values->queue == NULL) {
                cli_say("dead: say with --queue to which queue they go back");
                return CLI_USAGE;
            }
            if (!deeds[i].one || values->letter != 0 || (values->all && i == 2))
                return CLI_OK;
            cli_say("dead: say which one with --number N, as idem dead list counts them%s",
                    i == 2 ? ", or --all" : "");
            return CLI_USAGE;
        }
    }
    cli_say("dead: say what to do, the broker's URL and the queue: idem dead list|show|requeue URL "
            "--queue NAME (see: idem help dead)");
    return CLI_USAGE;
}

static int dead_run(const struct cli_values *values) {
    struct dead d = {.values = values};
    size_t deed = 0;
    int status = values_check(values, &deed), written;

    if (status == CLI_OK && deeds[deed].each == requeue_one && !values->dry_run)
        status = cli_audit_open(&d.audit, values, "requeue");
    if (status == CLI_OK)
        status = place_open(&d);
    if (status == CLI_OK)
        status = letters_walk(&d, deeds[deed].each,
                              deeds[deed].one && !values->all ? values->letter : 0);
    if (d.place != NULL)
        d.broker->close(d.place);
    if (status == CLI_OK)
        status = cli_flush();
    if (d.done + d.kept != 0)
        cli_say("%" PRId64 " requeued, %" PRId64 " kept", d.done, d.kept);
    written = cli_audit_close(&d.audit);
    if (status == CLI_OK)
        status = d.kept != 0 ? CLI_UNCERTAIN : written;
    idem_close(d.h);
    free(d.url);
    free(d.name);
    cli_signals_let();
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
            "queue, and then removes it here, with a line in the audit. What is only looked at\n"
            "stays where it is.\n",
    .after = "  idem dead list amqp://localhost --queue orders\n"
             "  idem dead requeue amqp://localhost --queue orders --number 3\n",
    .operand = "a URL",
    .options = dead_options,
    .run = dead_run,
};
