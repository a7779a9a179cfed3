/*
 * Idem's tables in a server of the farm, as its owner makes them.
 */
#ifndef IDEM_TEST_STORE_SQL_TABLES_H
#define IDEM_TEST_STORE_SQL_TABLES_H

#include "farm.h"

void tables_make(struct farm *farm);

#endif
