--- The language server's client, the same for all versions of Neovim.
local M = {}

--- Methods of a client take it as their first argument from 0.11 on.
function M.call(client, name, ...)
  if vim.fn.has('nvim-0.11') == 1 then
    return client[name](client, ...)
  end
  return client[name](...)
end

--- @param bufnr integer? only a client that this buffer has
function M.client(bufnr)
  for _, client in ipairs((vim.lsp.get_clients or vim.lsp.get_active_clients)()) do
    if client.name == 'foretype' and (not bufnr or vim.lsp.buf_is_attached(bufnr, client.id)) then
      return client
    end
  end
end

return M
