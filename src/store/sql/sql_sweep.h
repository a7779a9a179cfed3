/*
 * The timing of the sweeper.
 */
#ifndef IDEM_STORE_SQL_SQL_SWEEP_H
#define IDEM_STORE_SQL_SQL_SWEEP_H

/* Divides the sweeper's pauses. Variable only so that tests need not wait. */
extern unsigned sql_sweep_hurry;

#endif
