/*
 * The Redis store's URLs against any text: read or refused, and no error shows
 * the password.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis_connection.h"

#define SECRET "S3CR3T"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void config_check(const struct redis_config *config) {
    assert(config->hosts_n >= 1 && config->hosts_n <= REDIS_HOSTS_MAX);
    for (size_t i = 0; i < config->hosts_n; i++) {
        assert(config->hosts[i].name[0] != '\0');
        assert(memchr(config->hosts[i].name, '\0', sizeof(config->hosts[i].name)) != NULL);
        assert(config->hosts[i].port != 0 || config->hosts[i].name[0] == '/');
    }
    assert(config->name != NULL && config->db >= 0);
    assert(config->timeout_ms > 0 && config->connect_timeout_ms > 0);
    assert((config->kind == REDIS_SENTINEL) == (config->master != NULL));
    assert((config->tls_cert == NULL) == (config->tls_key == NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const begins[] = {
        "redis:",
        "rediss:",
        "redis+sentinel:",
        "redis+cluster:",
        "rediss+cluster:",
        "rediss+sentinel:",
        "redis://u:" SECRET "@",
        "redis://:" SECRET "@",
        "redis+sentinel://u:" SECRET "@",
    };
    struct redis_config config = {0};
    struct idem_error err = {0};
    struct idem_url url = {0};
    char *text;
    int rc;

    if (size < 1 || memmem(data, size, SECRET, strlen(SECRET)) != NULL)
        return 0;
    text = malloc(size + 64);
    rc = snprintf(text, 64, "%s", begins[data[0] % (sizeof(begins) / sizeof(begins[0]))]);
    memcpy(text + rc, data + 1, size - 1);
    text[(size_t)rc + size - 1] = '\0';
    /* The fuzzer must not read files. */
    if (strcasestr(text, "file") == NULL && strchr(text, '%') == NULL &&
        idem_url_parse(text, &url, &err) == 0) {
        rc = redis_config_read(&url, &config, &err);
        if (rc == 0) {
            config_check(&config);
            redis_config_release(&config);
        } else {
            assert(rc == err.code && err.text[0] != '\0' && config.hosts_n == 0);
            assert(strstr(err.text, SECRET) == NULL);
        }
        idem_url_release(&url);
    }
    free(text);
    return 0;
}
