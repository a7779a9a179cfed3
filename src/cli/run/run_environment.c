/*
 * Builds the command's environment. Variables from an enclosing `idem run` are left out: they
 * describe another command. Fails only without memory.
 */
#include "cli/run/run_environment.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"IDEM_KEY=", "IDEM_ATTEMPT=", "IDEM_AT="};
#define NAMES_N (sizeof(names) / sizeof(names[0]))

static bool run_environment_is_own(const char *variable) {
    for (size_t i = 0; i < NAMES_N; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Only the variables set here were allocated; others of these names are never copied. */
void cli_environment_free(char **env) {
    if (env == NULL)
        return;
    for (size_t i = 0; env[i] != NULL; i++)
        if (run_environment_is_own(env[i]))
            free(env[i]);
    free(env);
}

static bool run_environment_append(char **env, size_t *at, const char *name, const char *value) {
    if (asprintf(&env[*at], "%s%s", name, value) < 0) {
        env[*at] = NULL;
        return false;
    }
    (*at)++;
    return true;
}

char **cli_environment(const char *key, uint32_t attempt, const char *planned) {
    size_t n = 0, at = 0;
    char number[16], **env;

    while (environ != NULL && environ[n] != NULL)
        n++;
    env = calloc(n + NAMES_N + 1, sizeof(*env));
    if (env == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!run_environment_is_own(environ[i]))
            env[at++] = environ[i];
    snprintf(number, sizeof(number), "%" PRIu32, attempt);
    if (run_environment_append(env, &at, names[0], key) &&
        run_environment_append(env, &at, names[1], number) &&
        (planned == NULL || run_environment_append(env, &at, names[2], planned)))
        return env;
    cli_environment_free(env);
    return NULL;
}
