// SPDX-License-Identifier: Apache-2.0

//go:build !go1.22

package reedsolomon

import "runtime"

// Stands for runtime.Pinner in Go 1.19 to 1.21. Their garbage collectors never move what is on the heap. Pin puts the memory there,
// because the compiler must take it for kept. It stays alive until Unpin. (The Pinner of Go 1.21 refuses memory of mmap.)
type pinner struct{ kept []any }

func (p *pinner) Pin(memory any) { p.kept = append(p.kept, memory) }
func (p *pinner) Unpin()         { runtime.KeepAlive(p.kept) }
