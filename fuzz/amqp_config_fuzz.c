/*
 * The URLs of RabbitMQ servers against any text: read or refused, and no error shows the password.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue/amqp/rabbit.h"

#define SECRET "S3CR3T"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void config_check(const struct rabbit_config *config) {
    assert(config->hosts_n >= 1 && config->hosts_n <= RABBIT_HOSTS_MAX);
    for (size_t i = 0; i < config->hosts_n; i++) {
        assert(config->hosts[i].name[0] != '\0' && config->hosts[i].port != 0);
        assert(memchr(config->hosts[i].name, '\0', sizeof(config->hosts[i].name)) != NULL);
    }
    assert(config->user != NULL && config->password != NULL && config->vhost != NULL);
    assert(config->name != NULL && config->connect_timeout_ms > 0);
    assert(config->heartbeat_ms >= 1000 && config->heartbeat_ms % 1000 == 0);
    assert((config->tls_cert == NULL) == (config->tls_key == NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const begins[] = {
        "amqp:", "amqps:", "amqp://u:" SECRET "@", "amqp://:" SECRET "@", "amqps://u:" SECRET "@",
    };
    struct rabbit_config config = {0};
    struct idem_error err = {0};
    char *text;
    int rc;

    if (size < 1 || memmem(data, size, SECRET, strlen(SECRET)) != NULL)
        return 0;
    text = malloc(size + 64);
    rc = snprintf(text, 64, "%s", begins[data[0] % (sizeof(begins) / sizeof(begins[0]))]);
    memcpy(text + rc, data + 1, size - 1);
    text[(size_t)rc + size - 1] = '\0';
    /* The fuzzer must not read files. */
    if (strcasestr(text, "file") == NULL && strchr(text, '%') == NULL) {
        rc = rabbit_config_read(text, &config, &err);
        if (rc == 0) {
            config_check(&config);
            rabbit_config_release(&config);
        } else {
            assert(rc == err.code && err.text[0] != '\0' && config.hosts_n == 0);
            assert(strstr(err.text, SECRET) == NULL);
        }
    }
    free(text);
    return 0;
}
