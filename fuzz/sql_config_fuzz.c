/*
 * The SQL stores' URLs against any text: read or refused, and no error shows the password.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql_engine.h"

#define SECRET "S3CR3T"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void config_check(const struct sql_config *config) {
    struct sql_config copy;

    assert(config->hosts_n >= 1 && config->hosts_n <= SQL_HOSTS_MAX);
    for (size_t i = 0; i < config->hosts_n; i++) {
        assert(config->hosts[i].name[0] != '\0');
        assert(memchr(config->hosts[i].name, '\0', sizeof(config->hosts[i].name)) != NULL);
        assert(config->hosts[i].port != 0 || config->hosts[i].name[0] == '/');
    }
    assert(config->name != NULL && config->db != NULL && config->tls != SQL_TLS_UNSET);
    assert(config->timeout_ms > 0 && config->connect_timeout_ms > 0);
    assert(config->connections_n >= 1 && config->connections_n <= SQL_CONNECTIONS_MAX);
    assert((config->tls_cert == NULL) == (config->tls_key == NULL));
    if (sql_config_copy(config, &copy))
        sql_config_release(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const begins[] = {"postgres:", "mysql:", "postgres://u:" SECRET "@",
                                         "mysql://:" SECRET "@"};
    struct sql_config config = {0};
    struct idem_error err = {0};
    struct idem_url url = {0};
    unsigned which;
    char *text;
    int rc;

    if (size < 1 || memmem(data, size, SECRET, strlen(SECRET)) != NULL)
        return 0;
    which = data[0] % 4;
    text = malloc(size + 64);
    rc = snprintf(text, 64, "%s", begins[which]);
    memcpy(text + rc, data + 1, size - 1);
    text[(size_t)rc + size - 1] = '\0';
    /* The fuzzer must not read files. */
    if (strcasestr(text, "file") == NULL && strchr(text, '%') == NULL &&
        idem_url_parse(text, &url, &err) == 0) {
        rc = sql_config_read(which % 2 == 0 ? &sql_engine_postgres : &sql_engine_mysql, &url,
                             &config, &err);
        if (rc == 0) {
            config_check(&config);
            sql_config_release(&config);
        } else {
            assert(rc == err.code && err.text[0] != '\0' && config.hosts_n == 0);
            assert(strstr(err.text, SECRET) == NULL);
        }
        idem_url_release(&url);
    }
    free(text);
    return 0;
}
