package refusal

import (
	"encoding/json"
	"net/http"
)

// chatBody is the error document of the chat routes.
type chatBody struct {
	Error     chatError `json:"error"`
	RequestID string    `json:"request_id"`
}

type chatError struct {
	Code      Code   `json:"code"`
	Type      string `json:"type"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// systemBody is the error document of every other route.
type systemBody struct {
	Error systemError `json:"error"`
}

type systemError struct {
	Code    Code   `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// ChatBody gives r's document on the chat routes. request is the gateway's own
// request id.
func (r *Refusal) ChatBody(request string) []byte {
	kind := r.Type()
	if r.Status == http.StatusConflict {
		kind = "api_error" // conflict_error belongs to the system routes
	}
	return document(chatBody{
		Error:     chatError{Code: r.Code, Type: kind, Message: r.Message, Retryable: r.Retryable},
		RequestID: request,
	})
}

// SystemBody gives r's document on the other routes.
func (r *Refusal) SystemBody() []byte {
	return document(systemBody{Error: systemError{Code: r.Code, Type: r.Type(), Message: r.Message}})
}

func document(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("refusal: strings always marshal: " + err.Error())
	}
	return append(b, '\n')
}

// Write answers with r: its headers, then its status, then body.
func (r *Refusal) Write(w http.ResponseWriter, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	retry := "false"
	if r.Retryable {
		retry = "true"
	}
	h.Set("X-Error-Retryable", retry)
	if r.RetryAfter != "" {
		h.Set("Retry-After", r.RetryAfter)
	}
	if r.Limit != nil {
		r.Limit.SetHeaders(h)
	}
	if r.Original != nil {
		r.Original.SetHeaders(h)
	}
	if r.Status == http.StatusUnauthorized {
		h.Set("Www-Authenticate", `Bearer realm="tollgate"`)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(body) // a caller that has gone needs no refusal
}
