/*
 * Finds the records that a command line selects: one by key or hash, or many by a filter. Fails if
 * a hash matches no record or several, on an unknown word or time, and if the store fails.
 */
#include <string.h>
#include <strings.h>

#include "base/words.h"
#include "cli/cli.h"
#include "cli/time_argument.h"

#define PAGE 64

/* One record. */

static const char *values_prefix(const struct cli_values *values) {
    return values->layer.said.prefix;
}

/* Returns an error text if the command line does not name one record properly, else NULL. */
static const char *values_name_fault(const struct cli_values *values) {
    size_t len;

    if (values->hash == NULL)
        return values->operands_n == 1 ? NULL : "name one record: KEY, or --hash HEX";
    if (values->operands_n != 0)
        return "name the record by KEY or by --hash, not by both";
    if (values->layer.said.scope != NULL)
        return "a hash has the scope in it: leave --scope out";
    if (values->key_is_token)
        return "a hash is of a token or of a key: leave --token out";
    len = strlen(values->hash);
    if (len < CLI_HASH_LEAST || len > 64 || strspn(values->hash, "0123456789abcdefABCDEF") != len)
        return "--hash takes 8 to 64 hex digits, as idem list shows them";
    return NULL;
}

static void values_name_by_key(const struct cli_values *values, struct idem_name *ret) {
    const char *prefix = values_prefix(values), *scope = values->layer.said.scope;

    *ret = (struct idem_name){
        .prefix = prefix == NULL ? CLI_PREFIX : prefix,
        .key = values->operands[0],
        .key_len = strlen(values->operands[0]),
        .token = values->key_is_token,
    };
    if (scope != NULL && strcmp(scope, IDEM_SCOPE_NONE) != 0) {
        ret->scope = scope;
        ret->scope_len = strlen(scope);
    }
}

struct hash_search {
    const char *hash;
    struct cli_name_hold *hold;
    int found;
};

static bool record_select_match_hash(const struct idem_entry *entry, void *data) {
    struct hash_search *search = data;

    if (strncasecmp(entry->hash, search->hash, strlen(search->hash)) != 0)
        return true;
    if (search->found++ > 0)
        return false;
    memcpy(search->hold->hash, entry->hash, sizeof(search->hold->hash));
    memcpy(search->hold->prefix, entry->prefix, sizeof(search->hold->prefix));
    return true;
}

/* A store looks records up by prefix and whole hash, but people type the first digits of a hash. */
static int record_select_by_hash(struct idem *h, const struct cli_values *values,
                                 struct cli_name_hold *hold, struct idem_name *ret) {
    struct hash_search search = {values->hash, hold, 0};
    struct idem_filter filter = {.prefix = values_prefix(values)};
    struct cli_values any = *values;
    int status;

    any.state = NULL;
    status = cli_each(h, &any, &filter, record_select_match_hash, &search);
    if (status != CLI_OK)
        return status;
    if (search.found == 0) {
        cli_say("no record has this hash%s; it may have expired",
                filter.prefix == NULL ? "" : " under this prefix");
        return CLI_ABSENT;
    }
    if (search.found > 1) {
        cli_say("several records' hashes begin so: give more digits, or --prefix");
        return CLI_USAGE;
    }
    *ret = (struct idem_name){.prefix = hold->prefix, .hash = hold->hash};
    return CLI_OK;
}

int cli_name(struct idem *h, const struct cli_values *values, struct cli_name_hold *hold,
             struct idem_name *ret) {
    const char *fault = values_name_fault(values);

    if (fault != NULL) {
        cli_say("%s", fault);
        return CLI_USAGE;
    }
    if (values->hash != NULL)
        return record_select_by_hash(h, values, hold, ret);
    values_name_by_key(values, ret);
    return CLI_OK;
}

/* Many records. */

static const char uncertain_word[] = "uncertain";

bool cli_entry_readable(const struct idem_entry *entry) {
    return entry->state != IDEM_DAMAGED && entry->state != IDEM_NEWER;
}

const char *cli_entry_state(const struct idem_entry *entry) {
    return entry->uncertain ? uncertain_word : idem_state_name(entry->state);
}

int cli_filter(struct idem *h, const struct cli_values *values, struct idem_filter *ret) {
    struct idem_filter filter = {.prefix = values_prefix(values)};
    struct idem_error err;
    int64_t now = 0;
    int state = 0;

    if (values->state != NULL) {
        filter.uncertain = strcmp(values->state, uncertain_word) == 0;
        if (filter.uncertain)
            state = IDEM_RUNNING;
        else if (!idem_word_find(idem_words_state, values->state, strlen(values->state), &state) ||
                 state == IDEM_ABSENT) {
            cli_say("--state is issued, running, uncertain, done, failed, damaged or newer");
            return CLI_USAGE;
        }
        filter.state = (enum idem_state)state;
    }
    if (values->since != NULL) {
        if (idem_time(h, &now, &err) < 0)
            return cli_say_error("store", &err);
        if (cli_when_parse(values->since, now, &filter.since_ms, &err) < 0)
            return cli_say_error("--since", &err);
    }
    *ret = filter;
    return CLI_OK;
}

bool cli_filter_takes(const struct cli_values *values, const struct idem_entry *entry) {
    return values->state == NULL || strcmp(values->state, cli_entry_state(entry)) == 0;
}

int cli_each(struct idem *h, const struct cli_values *values, const struct idem_filter *filter,
             bool (*each)(const struct idem_entry *entry, void *data), void *data) {
    static struct idem_entry page[PAGE];
    struct idem_cursor cursor = {0};
    struct idem_error err;
    size_t n = 0;

    while (!cursor.end) {
        if (idem_list(h, filter, &cursor, page, PAGE, &n, &err) < 0)
            return cli_say_error("list", &err);
        for (size_t i = 0; i < n; i++)
            if (cli_filter_takes(values, &page[i]) && !each(&page[i], data))
                return CLI_OK;
    }
    return CLI_OK;
}
