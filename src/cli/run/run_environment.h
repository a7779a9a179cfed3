/*
 * The environment of the command: idem's own, with IDEM_KEY, IDEM_ATTEMPT and IDEM_AT.
 */
#ifndef IDEM_CLI_RUN_RUN_ENVIRONMENT_H
#define IDEM_CLI_RUN_RUN_ENVIRONMENT_H

#include <stdint.h>

/* `planned` may be NULL. Owned by the caller; NULL without memory. */
char **cli_environment(const char *key, uint32_t attempt, const char *planned);
void cli_environment_free(char **env);

#endif
