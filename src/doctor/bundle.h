/* A tar file for reports of problems: findings, versions, plan and settings, without data and names of users. Private to src/doctor. */
#ifndef LTRAIN_DOCTOR_BUNDLE_H
#define LTRAIN_DOCTOR_BUNDLE_H

#include "doctor/needs.h"

/* Writes d->bundle, replacing an older file. needs: needs of the plan; NULL: there is no plan. ERR_IO: the file cannot be written. */
enum status bundle_write(const struct doctor *d, const struct findings *f, const struct needs *needs);

#endif
