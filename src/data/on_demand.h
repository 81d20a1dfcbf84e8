/* Passes over rows of arrays in memory that go through functions of ls_map, and over rows that are
 * made on request. A worker of a cluster computes only the samples of its own lanes, and more if
 * another worker fails. A sample has the same bits as in any other pass. */
#ifndef LS_DATA_ON_DEMAND_H
#define LS_DATA_ON_DEMAND_H

#include "data/dataset.h"

typedef struct ls_on_demand ls_on_demand;

/* Returns whether the dataset is an ls_batch over maps of single samples, or over rows that are
 * made on request. */
ls_status ls_on_demand_can(ls_dataset *dataset, bool *out);

ls_status ls_on_demand_create(ls_dataset *dataset, uint64_t epoch, ls_on_demand **out);

/* Returns the next batch, whose samples are not computed yet; NULL at the end. Valid until the next
 * call. */
ls_status ls_on_demand_next(ls_on_demand *d, const ls_element **out);

/* Computes missing samples from `first` to `end` - 1 of that batch. Threads of ls_map or
 * ls_prefetch continue with the same samples of the next batch. */
ls_status ls_on_demand_make(ls_on_demand *d, int64_t first, int64_t end);

/* Returns whether that sample has its values; false if one of the batch could not be made. */
bool ls_on_demand_is_made(ls_on_demand *d, int64_t sample);

void ls_on_demand_destroy(ls_on_demand *d);

/* ---- Rows ---- */

/* Same as ls_rows_create, but also for a dataset with an origin: returns the rows that are the
 * input of the maps. */
ls_status ls_rows_of_origin(ls_dataset *dataset, uint64_t epoch, ls_rows **out);

#endif
