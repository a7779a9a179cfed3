/*
 * The embedded store's state file against any text: read or refused.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/lmdb/lmdb_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lmdb_env env = {.config.path = "path"};
    struct lmdb_state state = {0};
    struct idem_error err = {0};
    char *text = malloc(size + 1);
    int rc;

    memcpy(text, data, size);
    text[size] = '\0';
    rc = lmdb_state_parse(&env, text, &state, &err);
    if (rc == 0)
        assert(strlen(state.boot) == LMDB_BOOT_LEN);
    else
        assert((rc == IDEM_E_CORRUPT || rc == IDEM_E_VERSION) && state.boot[0] == '\0');
    free(text);
    return 0;
}
