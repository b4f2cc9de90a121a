--- The language server's client, the same for all versions of Neovim.
local M = {}

local NEW = vim.fn.has('nvim-0.11') == 1

--- Methods of a client take it as their first argument from 0.11 on.
function M.call(client, name, ...)
  if NEW then
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

--- Column in bytes of a column in the units that were agreed on; at most the end of the line.
function M.byte(client, line, character)
  local encoding = client.offset_encoding
  if encoding == 'utf-8' then
    return math.min(character, #line)
  end
  if NEW then
    return vim.str_byteindex(line, encoding, character, false)
  end
  local ok, index = pcall(vim.str_byteindex, line, character, encoding == 'utf-16')
  return ok and index or #line
end

--- Length of a text in the units of the protocol's own default.
function M.utf16_length(text)
  if NEW then
    return vim.str_utfindex(text, 'utf-16')
  end
  local _, units = vim.str_utfindex(text)
  return units
end

return M
