"""Steps that were recorded elsewhere: profiles of PyTorch's, as tapes that can run here."""
