--- A buffer that gets another name by `:file`. Neovim tells of its changes under the new name from then on, and neither closes the
--- document nor opens it; from 0.8 on it does so when the buffer is written, as `:saveas` does at once.
local M = {}

local function open_again(bufnr, was)
  local client = vim.lsp.get_client_by_id(was.id)
  if not client or not vim.api.nvim_buf_is_valid(bufnr) then
    return
  end
  require('foretype.lsp').call(client, 'notify', 'textDocument/didClose', { textDocument = { uri = was.uri } })
  vim.cmd(('silent lua vim.lsp.buf_detach_client(%d, %d)'):format(bufnr, was.id)) -- it prints a line
  vim.lsp.buf_attach_client(bufnr, was.id)
  -- Keys that were typed ahead come before Neovim's own completion is there again: the question that they are worth is asked then.
  vim.schedule(function()
    if bufnr == vim.api.nvim_get_current_buf() and require('foretype.leaving').typing() then
      vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = bufnr, modeline = false })
    end
  end)
end

--- @param group integer of autocommands
--- @param closing fun(bufnr: integer) called before the document is opened under its new name
function M.on(group, closing)
  local renamed = {}
  local function on(event, run)
    vim.api.nvim_create_autocmd(event, {
      group = group,
      callback = function(about)
        run(about.buf)
      end,
    })
  end
  on('BufFilePre', function(bufnr)
    local client = require('foretype.lsp').client(bufnr)
    renamed[bufnr] = client and { id = client.id, uri = vim.uri_from_bufnr(bufnr) }
  end)
  if vim.fn.has('nvim-0.8') == 1 then
    on('BufWritePost', function(bufnr)
      renamed[bufnr] = nil
    end)
  end
  on('BufFilePost', function(bufnr)
    vim.schedule(function() -- behind `:saveas`, which writes
      local was = renamed[bufnr]
      renamed[bufnr] = nil
      if was then
        closing(bufnr)
        open_again(bufnr, was)
      end
    end)
  end)
end

return M
