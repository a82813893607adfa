package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// Inspect describes the table at a path or bucket URL.
func Inspect(ctx context.Context, rawURL string, log *slog.Logger, now func() time.Time) (d storage.Description, err error) {
	b, err := bucket.Open(ctx, rawURL, &bucket.Options{Drivers: cloud.Drivers(), Logger: log, Now: now})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	t, err := delta.Open(ctx, b, &delta.Options{Now: now, Logger: log})
	if err != nil {
		return d, err
	}
	return t.Describe(ctx)
}

// CheckTable opens a configured table as the services do. The error is why they
// would refuse it.
func CheckTable(ctx context.Context, conf config.Table, log *slog.Logger, now func() time.Time) (err error) {
	t := &table{conf: conf, log: log, now: now}
	defer func() { err = errors.Join(err, t.close()) }()
	_, err = t.bind(ctx)
	return err
}
