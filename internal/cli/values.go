package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"
)

// valueParsers parse flags and arguments like kong does, but with errors that
// name no type of Go.
func valueParsers() kong.Option {
	options := []kong.Option{kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), kong.MapperFunc(parsePrefix)),
		kong.TypeMapper(reflect.TypeFor[uuid.UUID](), kong.MapperFunc(parseUUID))}
	for _, k := range []reflect.Kind{reflect.Int, reflect.Int32, reflect.Int64} {
		options = append(options, kong.KindMapper(k, kong.MapperFunc(parseInt)))
	}
	options = append(options, kong.KindMapper(reflect.Float64, kong.MapperFunc(parseFloat)),
		kong.KindMapper(reflect.Bool, boolParser{}))
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, o := range options {
			if err := o.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

func popText(ctx *kong.DecodeContext) (string, error) {
	var text string
	return text, ctx.Scan.PopValueInto("value", &text)
}

func parseInt(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is too large", text)
	case err != nil:
		return fmt.Errorf("%q is not a whole number", text)
	}
	target.SetInt(n)
	return nil
}

func parseFloat(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	target.SetFloat(n)
	return nil
}

func parseDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 90s, 15m or 24h", text)
	}
	target.SetInt(int64(d))
	return nil
}

func parsePrefix(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
	}
	target.Set(reflect.ValueOf(prefix))
	return nil
}

func parseUUID(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return fmt.Errorf("%q is not a uuid", text)
	}
	target.Set(reflect.ValueOf(id))
	return nil
}

// boolParser parses a flag that needs no value.
type boolParser struct{}

// IsBool implements kong.BoolMapper.
func (boolParser) IsBool() bool { return true }

// Decode implements kong.Mapper.
func (boolParser) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	switch strings.ToLower(text) {
	case "true", "1", "yes":
		target.SetBool(true)
	case "false", "0", "no":
		target.SetBool(false)
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}
