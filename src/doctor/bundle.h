/* A tar file for reports of problems: findings, versions, plan and settings, without data and names of users. Private to src/doctor. */
#ifndef LTRAIN_DOCTOR_BUNDLE_H
#define LTRAIN_DOCTOR_BUNDLE_H

#include "doctor/needs.h"

/* Writes the bundle, replacing an older file. needs: needs of the plan; NULL: there is no plan. ERR_IO: the file cannot be written. */
enum status bundle_write(const char *path, const char *version, const struct findings *f, const struct needs *needs);

/* Copies a text with users' names, home directories and the host's name replaced by ~, USER and HOST. To be freed; NULL: no
 * memory. */
char *bundle_without_names(const char *text);

#endif
