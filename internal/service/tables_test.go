package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"delenda/internal/config"
	"delenda/storage"
	"delenda/storage/match"
)

func TestATableThatDoesNotAnswerHoldsUpNoSender(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	asked := make(chan struct{}, 100)
	store := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer store.Close()
	orders := &table{
		conf: config.Table{
			Name: "orders", URL: "s3://lake/orders?region=us-east-1&use_path_style=true&hostname_immutable=true&endpoint=" + store.URL,
			Identities: map[string]string{"customer_id": "customer_id"},
		},
		log: slog.New(slog.DiscardHandler), now: time.Now,
	}
	orders.types.Store(&[]match.Column{{Name: "customer_id", Type: "long"}}) // of an earlier look
	ctx, cancel := context.WithCancel(t.Context())
	bound, checked := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := orders.bind(ctx)
		bound <- err
	}()
	<-asked
	go func() { checked <- orders.check(storage.Key{Column: "customer_id", Value: storage.NewSecret("007")}) }()
	select {
	case err := <-checked:
		if !errors.Is(err, storage.ErrRefused) {
			t.Errorf("got %v, want a refusal of the value", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the value is not checked while the table is being read")
	}
	cancel()
	if err := <-bound; err == nil {
		t.Error("the table is bound")
	}
	if err := orders.close(); err != nil {
		t.Error(err)
	}
}
