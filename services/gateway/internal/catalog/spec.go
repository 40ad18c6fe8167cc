package catalog

// A Spec names a vendor's dialect of the OpenAI-compatible API. It chooses the
// preset of quirks; models.yaml may override each of them for a provider.
type Spec string

// The dialects that are built.
const (
	SpecGroq       Spec = "groq"
	SpecOpenRouter Spec = "openrouter"
	SpecNVIDIA     Spec = "nvidia"
	SpecOpenAI     Spec = "openai" // anything OpenAI-compatible, the mock provider too
)

// The names under which a vendor takes the cap on output tokens.
const (
	FieldMaxTokens           = "max_tokens"
	FieldMaxCompletionTokens = "max_completion_tokens"
)

// Quirks are the ways in which OpenAI-compatible vendors differ.
type Quirks struct {
	// IncludeUsage asks for usage in a stream with
	// stream_options.include_usage.
	IncludeUsage bool
	// MaxTokensField is the name of the output cap: FieldMaxTokens or
	// FieldMaxCompletionTokens.
	MaxTokensField string
	// CachedExcluded says that the vendor's prompt_tokens leave out cached
	// tokens (as Anthropic counts), so that they are added to the prompt.
	CachedExcluded bool
}

// preset gives a dialect's quirks, and whether the dialect is known.
func preset(s Spec) (Quirks, bool) {
	switch s {
	case SpecGroq:
		return Quirks{IncludeUsage: true, MaxTokensField: FieldMaxCompletionTokens}, true
	case SpecOpenRouter, SpecNVIDIA, SpecOpenAI:
		return Quirks{IncludeUsage: true, MaxTokensField: FieldMaxTokens}, true
	}
	return Quirks{}, false
}
